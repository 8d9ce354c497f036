"""What one training job takes: read directly, with a cold cache, preloaded, and fully cached.

Epoch by epoch with the model of reading speed. Read directly, the page caches of the job's
nodes are all that helps; with a shared cache the first epoch fills it (cold) or finds it filled
(preloaded), and what does not fit is read from the source every epoch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tdcs.api.failures import InputError
from tdcs.decide.job.job_scenario import JobScenario
from tdcs.decide.place.copy_nodes import CacheNode, Mode, plan_copy
from tdcs.decide.place.reading_speed import Bottleneck, estimate, no_evict_hit_ratio, page_cache_hit_ratio

__all__ = ["JobScenario", "Prediction", "Run", "predict"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The job under one scheme: its time, the bytes from the source, what limits its first epoch."""

    seconds: float
    remote_bytes: float
    bottleneck: Bottleneck


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The four runs, how long preloading takes by itself, and the part of the dataset that fits into the cache."""

    direct: Run
    cold: Run
    preloaded: Run
    warm: Run
    load_seconds: float
    cached_fraction: float


def predict(scenario: JobScenario, *, where: str = "scenario") -> Prediction:
    """Predict the job's time under each scheme; `where` begins the message of an error.

    Raises:
        InputError: the job was measured faster than the links that are given can carry its data.
    """
    size = scenario.dataset_bytes
    fraction = no_evict_hit_ratio(fraction=scenario.cache_bytes / size)
    # The client of the cache is not in its way.
    direct = _run(replace(scenario, read_cpu_rate=math.inf), hit=lambda epoch: 0.0)
    cold = _run(scenario, hit=lambda epoch: 0.0 if epoch == 1 else fraction)
    loaded = _run(scenario, hit=lambda epoch: fraction)
    # The whole dataset in the cache, however small the cache is: what the hardware could do at best.
    warm = _measured(scenario, warm=_run(scenario, hit=lambda epoch: 1.0), where=where)
    preloaded = Run(
        seconds=loaded.seconds,
        remote_bytes=loaded.remote_bytes + fraction * size,
        bottleneck=loaded.bottleneck,
    )
    # What is loaded comes in over the links of the nodes that will hold it.
    load_seconds = fraction * size / min(scenario.remote_rate, scenario.nodes * scenario.nic_rate)
    return Prediction(
        direct=direct,
        cold=cold,
        preloaded=preloaded,
        warm=warm,
        load_seconds=load_seconds,
        cached_fraction=fraction,
    )


def _measured(scenario: JobScenario, *, warm: Run, where: str) -> Run:
    """The fully cached run, which takes what was measured; refused when the model cannot be as fast."""
    measured = scenario.warm_seconds
    if measured is None:
        return warm
    if warm.seconds > measured * (1.0 + 1e-6):
        slow = (
            "readCpuSecondsPerFile, cpusPerNode and jobsPerNode as given the processors"
            if warm.bottleneck is Bottleneck.CPU
            else f"nicBytesPerSecond {scenario.nic_rate:g} the links"
        )
        raise InputError(
            f"{where}: warmSeconds is {measured:g}, but with {slow} of its nodes take {warm.seconds:.0f} s for the "
            "fully cached job; correct what is wrong of these"
        )
    return replace(warm, seconds=measured)


def _run(scenario: JobScenario, *, hit: Callable[[int], float]) -> Run:
    size, nodes = scenario.dataset_bytes, scenario.nodes
    local = _local_share(scenario)
    page_fraction = scenario.page_cache_bytes / size
    seconds = remote = 0.0
    first: Bottleneck | None = None
    epoch = 1
    while epoch <= scenario.epochs:
        page = page_cache_hit_ratio(epoch=epoch, nodes=nodes, fraction=page_fraction)
        later = page_cache_hit_ratio(epoch=epoch + 1, nodes=nodes, fraction=page_fraction)
        cached = (1.0 - page) * hit(epoch)
        hits = page + cached
        speed = estimate(
            compute=scenario.compute_rate,
            nic=scenario.nic_rate * nodes,
            remote=scenario.remote_rate,
            cpu=scenario.read_cpu_rate,
            hit=hits,
            local=(page + cached * local) / hits if hits > 0 else 0.0,
            page=page,
        )
        first = first or speed.bottleneck
        # From the second epoch on nothing changes once the page caches have settled.
        repeat = scenario.epochs - epoch + 1 if epoch > 1 and later - page < 1e-12 else 1
        seconds += repeat * size / speed.rate
        remote += repeat * size * (1.0 - hits)
        epoch += repeat
    return Run(seconds=seconds, remote_bytes=remote, bottleneck=first or Bottleneck.COMPUTE)


def _local_share(scenario: JobScenario) -> float:
    """The part of the cached bytes that a node of the job finds on itself: all when replicated, else 1/n."""
    node_bytes = int(scenario.cache_bytes / scenario.nodes)
    nodes = [
        CacheNode(name=str(i), capacity_bytes=node_bytes, free_bytes=node_bytes, free_gpus=1)
        for i in range(scenario.nodes)
    ]
    plan = plan_copy(
        dataset="dataset", dataset_bytes=int(scenario.dataset_bytes), nodes=nodes, node_count=scenario.nodes
    )
    return 1.0 if plan.mode is Mode.REPLICATE else 1.0 / scenario.nodes
