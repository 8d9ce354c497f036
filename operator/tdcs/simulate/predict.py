"""What one training job takes: read directly, with a cold cache, preloaded, and fully cached.

Epoch by epoch with the throughput model of the policies. Read directly, the page caches of the job's
nodes are all that helps; with a shared cache the first epoch fills it (cold) or finds it filled
(preloaded), and what does not fit is read from the source every epoch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tdcs.api.quantities import to_bytes
from tdcs.policy.placement import CacheNode, Mode, plan_copy
from tdcs.policy.throughput import Bottleneck, estimate, no_evict_hit_ratio, page_cache_hit_ratio
from tdcs.simulate.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class JobScenario:
    """One job and what it runs on; the keys of a scenario file in snake case.

    Attributes:
        gpus: GPUs of the job.
        nodes: nodes that they are on.
        epochs: passes over the dataset.
        dataset_bytes: its size.
        cache_bytes: what the shared cache can hold of it, over all nodes.
        remote_rate: bytes per second that the source gives to the job.
        compute_rate: bytes per second that the GPUs take when data never lacks.
        nic_rate: bytes per second of a node's link; infinite when it is not given.
        page_cache_bytes: page cache of a node; 0 when it is not given.
    """

    gpus: int
    nodes: int
    epochs: int
    dataset_bytes: float
    cache_bytes: float
    remote_rate: float
    compute_rate: float
    nic_rate: float = math.inf
    page_cache_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The job under one scheme: its time, the bytes from the source, what limits its first epoch."""

    seconds: float
    remote_bytes: float
    bottleneck: Bottleneck


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The four runs, and how long preloading takes by itself."""

    direct: Run
    cold: Run
    preloaded: Run
    warm: Run
    load_seconds: float
    advice: str

    def document(self) -> dict[str, object]:
        """The prediction as the command prints it."""
        runs = {"direct": self.direct, "cold": self.cold, "preloaded": self.preloaded, "warm": self.warm}
        return {
            **{f"{name}Seconds": round(run.seconds, 3) for name, run in runs.items()},
            "bottleneck": self.direct.bottleneck.value,
            "bottlenecks": {name: run.bottleneck.value for name, run in runs.items()},
            "loadSeconds": round(self.load_seconds, 3),
            "remoteBytes": {name: round(run.remote_bytes) for name, run in runs.items()},
            "advice": self.advice,
        }


def predict(scenario: JobScenario) -> Prediction:
    """Predict the job's time under each scheme."""
    size = scenario.dataset_bytes
    fraction = no_evict_hit_ratio(fraction=scenario.cache_bytes / size)
    direct = _run(scenario, hit=lambda epoch: 0.0)
    cold = _run(scenario, hit=lambda epoch: 0.0 if epoch == 1 else fraction)
    loaded = _run(scenario, hit=lambda epoch: fraction)
    # The whole dataset in the cache, however small the cache is: what the hardware could do at best.
    warm = _run(scenario, hit=lambda epoch: 1.0)
    preloaded = Run(
        seconds=loaded.seconds,
        remote_bytes=loaded.remote_bytes + fraction * size,
        bottleneck=loaded.bottleneck,
    )
    load_seconds = fraction * size / scenario.remote_rate
    return Prediction(
        direct=direct,
        cold=cold,
        preloaded=preloaded,
        warm=warm,
        load_seconds=load_seconds,
        advice=_advice(
            direct=direct, cold=cold, preloaded=preloaded, warm=warm, fraction=fraction, load=load_seconds
        ),
    )


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
            hit=hits,
            local=(page + cached * local) / hits if hits > 0 else 0.0,
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
    each = int(scenario.cache_bytes / scenario.nodes)
    nodes = [
        CacheNode(name=str(i), capacity_bytes=each, free_bytes=each, free_gpus=1)
        for i in range(scenario.nodes)
    ]
    plan = plan_copy(
        dataset="dataset", dataset_bytes=int(scenario.dataset_bytes), nodes=nodes, node_count=scenario.nodes
    )
    return 1.0 if plan.mode is Mode.REPLICATE else 1.0 / scenario.nodes


def _advice(*, direct: Run, cold: Run, preloaded: Run, warm: Run, fraction: float, load: float) -> str:
    gain = direct.seconds / preloaded.seconds
    if gain < 1.01:
        return "The job is as fast when it reads directly: caching its dataset gains less than 1 %."
    words = [f"Cache the dataset: preloaded it trains {gain:.1f} times as fast as when it reads directly."]
    if fraction < 1.0:
        words.append(
            f"Only {fraction:.0%} of it fits; a larger cache would make it up to "
            f"{preloaded.seconds / warm.seconds:.2f} times as fast."
        )
    saved = cold.seconds - preloaded.seconds
    if saved > load:
        words.append(f"Preload before the start: it takes {load:.0f} s and saves {saved:.0f} s of GPU time.")
    elif saved > 0.01 * cold.seconds:
        words.append(
            f"Preloading takes {load:.0f} s and saves {saved:.0f} s; do it while the job waits for GPUs."
        )
    if warm.bottleneck is Bottleneck.NETWORK:
        words.append("Even then the nodes' links limit it: replicate the dataset on the job's nodes.")
    return " ".join(words)


_COUNTS = ("gpus", "nodes", "epochs")
_SIZES = (
    "datasetBytes",
    "datasetFiles",
    "cacheBytes",
    "pageCacheBytesPerNode",
    "remoteBytesPerSecond",
    "nicBytesPerSecond",
)
_SPEEDS = ("warmSeconds", "imagesPerSecondPerGpu")
_REQUIRED = ("gpus", "nodes", "epochs", "datasetBytes", "cacheBytes", "remoteBytesPerSecond")
KEYS = (*_COUNTS, *_SIZES, *_SPEEDS)


def read_scenario(*, path: Path) -> JobScenario:
    """Read a scenario file.

    Raises:
        InputError: it cannot be read, is no mapping, has an unknown or lacks a required key, or a value is
            not above zero.
    """
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give the path of a scenario in YAML"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is not YAML ({reason}); correct the file") from error
    if not isinstance(loaded, dict) or not loaded:
        raise InputError(f"{path}: holds no keys; write a mapping with the keys {', '.join(KEYS)}")
    return parse_scenario(where=str(path), values=loaded)


def parse_scenario(*, where: str, values: Mapping[object, object]) -> JobScenario:
    """Check the keys and values of a scenario; `where` begins every message. See :func:`read_scenario`."""
    for key in values:
        if key not in KEYS:
            raise InputError(f"{where}: unknown key {key}; the keys are {', '.join(KEYS)}")
    for key in _REQUIRED:
        if key not in values:
            raise InputError(f"{where}: key {key} is missing; add it")
    number = {str(key): _value(where=where, key=str(key), value=value) for key, value in values.items()}
    if ("warmSeconds" in number) == ("imagesPerSecondPerGpu" in number):
        raise InputError(
            f"{where}: give either warmSeconds or imagesPerSecondPerGpu; it says how fast the GPUs are"
        )
    gpus, nodes, epochs = (int(number[key]) for key in _COUNTS)
    if nodes > gpus:
        raise InputError(f"{where}: nodes is {nodes} but gpus is {gpus}; every node needs at least one GPU")
    size = number["datasetBytes"]
    if "warmSeconds" in number:
        compute = size * epochs / number["warmSeconds"]
    elif "datasetFiles" in number:
        compute = number["imagesPerSecondPerGpu"] * gpus * size / number["datasetFiles"]
    else:
        raise InputError(f"{where}: key datasetFiles is missing; imagesPerSecondPerGpu needs it")
    return JobScenario(
        gpus=gpus,
        nodes=nodes,
        epochs=epochs,
        dataset_bytes=size,
        cache_bytes=number["cacheBytes"],
        remote_rate=number["remoteBytesPerSecond"],
        compute_rate=compute,
        nic_rate=number.get("nicBytesPerSecond", math.inf),
        page_cache_bytes=number.get("pageCacheBytesPerNode", 0.0),
    )


def _value(*, where: str, key: str, value: object) -> float:
    number: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and key in _SIZES:
        try:
            number = float(to_bytes(value))
        except ValueError:
            number = None
    if number is None or not math.isfinite(number):
        raise InputError(f"{where}: {key} must be a number, got {value!r}; correct it")
    if number <= 0:
        remedy = (
            "leave the key out" if key in ("pageCacheBytesPerNode", "nicBytesPerSecond") else "correct it"
        )
        raise InputError(f"{where}: {key} must be above zero, got {value}; {remedy}")
    if key in _COUNTS and number != int(number):
        raise InputError(f"{where}: {key} must be a whole number, got {value}; correct it")
    return number
