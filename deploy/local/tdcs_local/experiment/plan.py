"""What the experiment runs, in which order, and how long that takes by its own estimate."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

MOST_SECONDS = 1800.0
"""What the runs may take together: half an hour."""
START_SECONDS = 8.0
"""Jobs of a run begin to read at the same moment, so long after they were made."""
RUN_OVERHEAD_SECONDS = START_SECONDS + 3.0
"""A run's pods start, mount and are looked at."""
DATASET_OVERHEAD_SECONDS = 12.0
"""A Dataset is made and deleted with what is cached of it."""
CACHE_BYTES = 2 << 30
"""What a node's cache holds by the values of the local cluster: more than the bucket."""
PAYLOAD = 1448 / 1514
"""Object bytes in a byte of the wire: the link's rate counts the headers of Ethernet, IP and TCP."""


class Configuration(StrEnum):
    """How the jobs get at the bucket."""

    DIRECT = "direct"
    """Each job mounts the bucket with rclone, without a cache on the disk."""
    STOCK = "stock Alluxio"
    """A CacheCluster of the profile Stock that holds nothing at first: reads fill it."""
    PRELOADED = "preloaded"
    """A Dataset of TDCS that was loaded before, and that no job has read yet."""
    SHARED = "shared"
    """The same Dataset, after other jobs have read it."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every job does: images of so many bytes in all, read in batches; the GPU is a fixed time a batch.

    ``cpus`` are the processors of the machine: all nodes of the local cluster share them.
    """

    images: int
    total_bytes: int
    batch: int = 12
    batch_seconds: float = 0.1
    epochs: int = 3
    readers: int = 8
    cpus: int = 2

    @property
    def compute_seconds(self) -> float:
        """What an epoch takes when data never lacks."""
        return -(-self.images // self.batch) * self.batch_seconds

    def link_seconds(self, *, mbit: int) -> float:
        """What all images take over the store's link once."""
        return self.total_bytes / payload_rate(mbit)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Jobs that run at the same time under one configuration."""

    configuration: Configuration
    jobs: int
    mbit: int
    repetition: int


def payload_rate(mbit: int) -> float:
    """Object bytes per second of a link."""
    return mbit * 1e6 / 8 * PAYLOAD


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The numbers of the experiment: a link that bounds the jobs, and one that does not."""

    slow_mbit: int = 27
    fast_mbit: int = 400
    jobs: tuple[int, ...] = (1, 2, 4)
    repetitions: int = 3

    def runs(self) -> Iterator[Run]:
        """All runs, in order: each shared one comes right after a preloaded one, and reads the same Dataset."""
        for repetition in range(1, self.repetitions + 1):
            for jobs in self.jobs:
                for configuration in Configuration:
                    yield Run(
                        configuration=configuration, jobs=jobs, mbit=self.slow_mbit, repetition=repetition
                    )
            for configuration in (Configuration.DIRECT, Configuration.PRELOADED, Configuration.SHARED):
                yield Run(configuration=configuration, jobs=1, mbit=self.fast_mbit, repetition=repetition)

    def estimated_seconds(self, setting: Setting) -> float:
        """How long the runs take with all that is between them."""
        return sum(_seconds(run, setting) for run in self.runs())


def _seconds(run: Run, setting: Setting) -> float:
    compute, link = setting.compute_seconds, setting.link_seconds(mbit=run.mbit)
    epochs = setting.epochs
    match run.configuration:
        case Configuration.DIRECT:
            return epochs * max(compute, run.jobs * link) + RUN_OVERHEAD_SECONDS
        case Configuration.STOCK:
            cold = max(compute, link) + (epochs - 1) * compute
            return cold + RUN_OVERHEAD_SECONDS + DATASET_OVERHEAD_SECONDS
        case Configuration.PRELOADED:
            return link + epochs * compute + RUN_OVERHEAD_SECONDS + DATASET_OVERHEAD_SECONDS
    return epochs * compute + RUN_OVERHEAD_SECONDS
