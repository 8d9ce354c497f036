"""Published times of training next to a NAS, as scenarios for the throughput model: ResNet50, 90 epochs, 8 V100 a node.

From Fluid's documentation, "Accelerate PVC with Fluid".
"""

from dataclasses import dataclass

from tdcs.decide.job.job_time import JobScenario

EPOCHS = 90
IMAGENET = 1_281_167 * 114_660
#: What the NAS of the runs gave, in bytes per second: one constant, fitted once for all rows.
NAS = 180e6


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """Seconds that one number of nodes took: with a filled cache, straight from the NAS, and with an empty cache."""

    nodes: int
    warm: float
    direct: float
    cold: float

    @property
    def scenario(self) -> JobScenario:
        """The run as the model sees it; the warm time gives the speed of the GPUs."""
        return JobScenario(
            gpus=8 * self.nodes,
            nodes=self.nodes,
            epochs=EPOCHS,
            dataset_bytes=IMAGENET,
            cache_bytes=600e9,
            page_cache_bytes=200e9,
            remote_rate=NAS,
            compute_rate=IMAGENET * EPOCHS / self.warm,
        )


RUNS = (
    PublishedRun(nodes=1, warm=12_855, direct=13_750, cold=13_840),
    PublishedRun(nodes=4, warm=5_542, direct=8_159, cold=6_223),
)
