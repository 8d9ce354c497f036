"""The figure of the paper: ResNet50 on ImageNet with 8 to 128 V100, four ways to read the data.

Zhang Kai, Che Yang, "Accelerating containerised deep learning with a distributed cache", Big Data
Research 2021(5), figure 5. Its numbers were published as ranges only: how much each step
gains over the one before. The model is that of the policies (:mod:`tdcs.decide.place.reading_speed`) with:

- the speed of the GPUs on 8 and on 32 V100 as measured on a cached dataset (Fluid's documentation,
  "Accelerate PVC with Fluid", speed at the last step, warm), and in between and beyond by the cost of a
  ring all-reduce, which grows as (n - 1)/n with n nodes;
- the FUSE client of a node with 8 V100, 990 images per second and GPU (Alluxio issue 10688, which
  measured 990 to 1,040);
- three constants that are fitted to the ranges, one set for all sizes and configurations: what a node
  gets from the object store, the number of epochs of a measured run, and how many files per second a node
  opens for the first time (the metadata of a file is fetched once and then cached; a
  second job on the same data finds it cached).

Three fitted constants against sixteen intervals: a consistency check, not a prediction. The account
limit of the store does not appear, because with the default of 10 Gbit/s the gain at 128 GPUs would
have been 7 times, outside what was published.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tdcs.decide.place.reading_speed import estimate

GPUS_PER_NODE = 8
SIZES = (8, 32, 64, 128)
CONFIGURATIONS = ("direct", "alluxio", "preload", "share")
IMAGES = 1_281_167


@dataclass(frozen=True, kw_only=True, slots=True)
class Constants:
    """Measured elsewhere and published: the first three. Fitted: the others. Per second throughout."""

    images_per_gpu_at_8: float = 9301.6 / 8
    images_per_gpu_at_32: float = 21329 / 32
    client_images_per_gpu: float = 990.0
    store_images_per_node: float = 2160.0
    epochs: int = 12
    first_opens_per_node: float = 9833.0

    def images_per_gpu(self, *, nodes: int) -> float:
        """The speed of a GPU when data never lacks; all-reduce costs (n - 1)/n of a constant."""
        alone = 1.0 / self.images_per_gpu_at_8
        ring = (1.0 / self.images_per_gpu_at_32 - alone) / (3 / 4)
        return 1.0 / (alone + ring * (nodes - 1) / nodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A published range of the ratio of two configurations' speeds."""

    name: str
    faster: str
    slower: str
    low: float
    high: float


RANGES = (
    Range(name="alluxio over direct (+25 to +200 %)", faster="alluxio", slower="direct", low=1.25, high=3.0),
    Range(
        name="preload over alluxio (+7 to +102 %)", faster="preload", slower="alluxio", low=1.07, high=2.02
    ),
    Range(name="share over preload (+4 to +7 %)", faster="share", slower="preload", low=1.04, high=1.07),
    Range(name="all over direct (2.2 to 3.7 times)", faster="share", slower="direct", low=2.2, high=3.7),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Whether a ratio is in the published range."""

    published: Range
    ratio: float

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.published.low <= self.ratio <= self.published.high

    @property
    def margin(self) -> float:
        """Distance to the nearer end, as a part of the range's width; negative outside."""
        width = self.published.high - self.published.low
        return min(self.ratio - self.published.low, self.published.high - self.ratio) / width


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One bar of the figure."""

    gpus: int
    configuration: str
    images_per_second: float
    ratio_to_direct: float
    checks: tuple[Check, ...]


def speeds(*, gpus: int, constants: Constants) -> dict[str, float]:
    """Images per second over a whole run, by configuration."""
    nodes = gpus // GPUS_PER_NODE
    compute = gpus * constants.images_per_gpu(nodes=nodes)
    store = nodes * constants.store_images_per_node
    client = gpus * constants.client_images_per_gpu
    direct_epoch = IMAGES / estimate(compute=compute, remote=store, hit=0.0).rate
    cached_epoch = IMAGES / estimate(compute=compute, cache=client, hit=1.0).rate
    opens = IMAGES / (nodes * constants.first_opens_per_node)
    epochs = constants.epochs
    seconds = {
        "direct": epochs * direct_epoch,
        "alluxio": direct_epoch + (epochs - 1) * cached_epoch + opens,
        "preload": epochs * cached_epoch + opens,
        "share": epochs * cached_epoch,
    }
    return {name: epochs * IMAGES / spent for name, spent in seconds.items()}


def rows(*, constants: Constants | None = None) -> Iterator[Row]:
    """The figure: a row for each size and configuration."""
    for gpus in SIZES:
        speed = speeds(gpus=gpus, constants=constants or Constants())
        for name in CONFIGURATIONS:
            yield Row(
                gpus=gpus,
                configuration=name,
                images_per_second=speed[name],
                ratio_to_direct=speed[name] / speed["direct"],
                checks=tuple(
                    Check(published=claim, ratio=speed[name] / speed[claim.slower])
                    for claim in RANGES
                    if claim.faster == name
                ),
            )


def document(*, constants: Constants | None = None) -> dict[str, object]:
    """The figure as the command prints it."""
    chosen = constants or Constants()
    return {
        "rows": [
            {
                "gpus": row.gpus,
                "configuration": row.configuration
                if row.configuration in ("direct", "alluxio")
                else f"+{row.configuration}",
                "imagesPerSecond": round(row.images_per_second, 1),
                "ratioToDirect": round(row.ratio_to_direct, 4),
                "ranges": [
                    {
                        "name": check.published.name,
                        "low": check.published.low,
                        "high": check.published.high,
                        "ratio": round(check.ratio, 4),
                        "holds": check.holds,
                    }
                    for check in row.checks
                ],
            }
            for row in rows(constants=chosen)
        ],
        "constants": {
            "published": {
                "imagesPerSecondPerGpuAt8": round(chosen.images_per_gpu_at_8, 2),
                "imagesPerSecondPerGpuAt32": round(chosen.images_per_gpu_at_32, 2),
                "clientImagesPerSecondPerGpu": chosen.client_images_per_gpu,
            },
            "fitted": {
                "storeImagesPerSecondPerNode": chosen.store_images_per_node,
                "epochs": chosen.epochs,
                "firstOpensPerSecondPerNode": chosen.first_opens_per_node,
            },
        },
        "allRangesHold": all(check.holds for row in rows(constants=chosen) for check in row.checks),
    }
