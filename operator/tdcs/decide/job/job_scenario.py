"""One training job and what it runs on, checked: what `tdcs plan` and `tdcs predict` are given.

Every number has bounds. They are far outside what there is, and so narrow that no sum or quotient of the
model leaves the range of floating-point numbers and no loop of it takes longer than seconds.
"""

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass

from tdcs.api.failures import InputError
from tdcs.api.quantities import TooLargeError, to_bytes


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
        read_cpu_rate: bytes per second that the cache's client can read with the processors of the job's nodes;
            infinite when its cost is not given.
        warm_seconds: the measured time with everything cached, from which `compute_rate` was taken; None when
            it was taken from the speed of a GPU.
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
    read_cpu_rate: float = math.inf
    warm_seconds: float | None = None


_COUNTS = ("gpus", "nodes", "epochs", "jobsPerNode")
_OPTIONAL = (
    "pageCacheBytesPerNode",
    "nicBytesPerSecond",
    "readCpuSecondsPerFile",
    "cpusPerNode",
    "jobsPerNode",
)
_OF_READING = ("cpusPerNode", "jobsPerNode")
"""Keys that say over what the cost of reading is spread."""
_SIZES = (
    "datasetBytes",
    "datasetFiles",
    "cacheBytes",
    "pageCacheBytesPerNode",
    "remoteBytesPerSecond",
    "nicBytesPerSecond",
)
#: Without these there is no prediction; one of warmSeconds and imagesPerSecondPerGpu is needed next to them.
REQUIRED = ("gpus", "nodes", "epochs", "datasetBytes", "cacheBytes", "remoteBytesPerSecond")
#: The least and the most of each key: an exabyte, a petabyte per second, thirty thousand years.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "gpus": (1, 1_000_000),
    "nodes": (1, 10_000),
    "epochs": (1, 1_000_000),
    "datasetBytes": (1, 1e18),
    "datasetFiles": (1, 1e15),
    "cacheBytes": (1, 1e18),
    "pageCacheBytesPerNode": (1, 1e18),
    "remoteBytesPerSecond": (1, 1e15),
    "nicBytesPerSecond": (1, 1e15),
    "readCpuSecondsPerFile": (1e-9, 1e4),
    "cpusPerNode": (1e-3, 1e5),
    "jobsPerNode": (1, 1e5),
    "warmSeconds": (1e-3, 1e12),
    "imagesPerSecondPerGpu": (1e-3, 1e9),
}
KEYS = tuple(BOUNDS)


def parse_scenario(
    *, where: str, values: Mapping[object, object], options: Mapping[str, str] | None = None
) -> JobScenario:
    """Check the keys and values of a scenario.

    Args:
        where: begins every message.
        values: by key.
        options: of keys that were given by an option of a command, that option: messages about their values name it.

    Raises:
        InputError: a key is unknown or missing, or a value is out of its bounds.
    """
    for key in values:
        if key not in BOUNDS:
            raise InputError(f"{where}: unknown key {short_name(key)}; the keys are {', '.join(KEYS)}")
    for key in REQUIRED:
        if key not in values:
            raise InputError(f"{where}: key {key} is missing; add it")
    number = {
        str(key): _value(where=where, key=str(key), value=value, options=options or {})
        for key, value in values.items()
    }
    if ("warmSeconds" in number) == ("imagesPerSecondPerGpu" in number):
        raise InputError(
            f"{where}: give either warmSeconds or imagesPerSecondPerGpu; it says how fast the GPUs are"
        )
    gpus, nodes, epochs = (int(number[key]) for key in ("gpus", "nodes", "epochs"))
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
        read_cpu_rate=_read_cpu_rate(where=where, number=number),
        warm_seconds=number.get("warmSeconds"),
    )


def _read_cpu_rate(*, where: str, number: Mapping[str, float]) -> float:
    """Bytes per second that the job's share of its nodes' processors can read through the cache's client."""
    if "readCpuSecondsPerFile" not in number:
        for key in _OF_READING:
            if key in number:
                raise InputError(
                    f"{where}: key readCpuSecondsPerFile is missing; {key} means nothing without it"
                )
        return math.inf
    for key in ("cpusPerNode", "datasetFiles"):
        if key not in number:
            raise InputError(f"{where}: key {key} is missing; readCpuSecondsPerFile needs it")
    cpus = number["cpusPerNode"] * number["nodes"] / number.get("jobsPerNode", 1.0)
    return cpus / number["readCpuSecondsPerFile"] * (number["datasetBytes"] / number["datasetFiles"])


def _value(*, where: str, key: str, value: object, options: Mapping[str, str]) -> float:
    called = options.get(key, key)
    number = _number(key=key, value=value)
    if number is None or math.isnan(number):
        raise InputError(f"{where}: {called} must be a number, got {_short(value)}; {_as_quantity(value)}")
    if number <= 0:
        remedy = f"leave {options.get(key, 'the key')} out" if key in _OPTIONAL else "correct it"
        raise InputError(f"{where}: {called} must be above zero, got {_short(value)}; {remedy}")
    if key in _COUNTS and number != math.inf and number != int(number):
        raise InputError(f"{where}: {called} must be a whole number, got {_short(value)}; correct it")
    least, most = BOUNDS[key]
    if not least <= number <= most:
        raise InputError(
            f"{where}: {called} must be at least {least:g} and at most {most:g}, got {_short(value)}; correct it"
        )
    return number


def _number(*, key: str, value: object) -> float | None:
    """The number of a key's value, infinite when it is too large for one; None when it is none."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str) and key in _SIZES:
            return float(to_bytes(value))
    except (OverflowError, TooLargeError):
        return -math.inf if isinstance(value, int) and value < 0 else math.inf
    except ValueError:
        return None
    return None


#: What people write for sizes and rates, and Kubernetes does not.
_BYTES = re.compile(r"([0-9.]{1,20}) ?([kKMGTPE])(i?)[Bb]?(?:/s|ps)?")


def _as_quantity(value: object) -> str:
    """The remedy for a size with the unit of another notation: 144GB is 144G or 144Gi."""
    match = _BYTES.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return "correct it"
    digits, unit, binary = match.groups()
    decimal, two = f"{digits}{'k' if unit in 'kK' else unit}", f"{digits}{unit.upper()}i"
    return f"write {two}" if binary else f"write {decimal} or {two}"


def short_name(key: object) -> str:
    return _short(key).strip("'")


def _short(value: object) -> str:
    """A value in a message; a long one is cut in its middle."""
    try:
        return reprlib.repr(value)
    except ValueError:
        # Python writes no integer of more than a few thousand digits.
        return "a number of thousands of digits"
