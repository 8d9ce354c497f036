"""How long a job would run, by the model of `tdcs predict`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tdcs.api.dataset import Dataset
from tdcs.decide.job.job_scenario import parse_scenario
from tdcs.decide.job.job_time import predict
from tdcs.model.humanize import human

_OPTIONS: Final[Mapping[str, str]] = {
    "epochs": "--epochs",
    "imagesPerSecondPerGpu": "--images-per-second-per-gpu",
    "warmSeconds": "--warm-seconds",
    "remoteBytesPerSecond": "--remote-bytes-per-second",
    "nicBytesPerSecond": "--nic-bytes-per-second",
}
"""Keys of a scenario that the user gives by an option, which messages are to name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What the user says of the job: it stands nowhere else.

    Attributes:
        epochs: passes over the data.
        images_per_second_per_gpu: when data never lacks; or
        warm_seconds: the measured time of the whole job with everything cached.
        remote_bytes_per_second: that the source gives to the job; None: as fast as its last load was.
        nic_bytes_per_second: of a node's link; None: it limits nothing.
    """

    epochs: int
    images_per_second_per_gpu: float | None = None
    warm_seconds: float | None = None
    remote_bytes_per_second: str | None = None
    nic_bytes_per_second: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How long it would run.

    Attributes:
        seconds: as it would start: with the part of its data cached that there is.
        direct_seconds: the same without the cache.
        cold_seconds, cached_seconds: with nothing of its data cached at its start, and with all that fits.
        bottleneck: what limits its first epoch when it starts with nothing cached.
        load_seconds: until all that fits is cached, if that is loaded before it starts.
        assumed: what was not said by the user, and where it is from.
    """

    seconds: float
    direct_seconds: float
    cold_seconds: float
    cached_seconds: float
    bottleneck: str
    load_seconds: float
    assumed: tuple[str, ...]


def forecast(
    *,
    speeds: Speeds,
    datasets: Sequence[Dataset],
    granted_bytes: int,
    gpus: int,
    nodes: int,
    waits_for_data: bool,
) -> Forecast:
    """How long the job would run.

    Args:
        speeds: what the user says.
        datasets: those that it reads, with their statuses.
        granted_bytes: what of them the cache may hold.
        gpus: of all its pods.
        nodes: on which they would be.
        waits_for_data: whether it starts only once its data is cached.

    Raises:
        InputError: what is given does not fit together, or nothing says how fast the source is: see `measured_rate`.
    """
    statuses = [dataset.status for dataset in datasets if dataset.status is not None]
    size = sum(status.total_bytes for status in statuses)
    assumed = []
    remote: object = speeds.remote_bytes_per_second
    if remote is None and (measured := measured_rate(datasets)) is not None:
        remote = measured
        assumed.append(
            f"the source gives {human(round(measured))}/s, as in the last load (--remote-bytes-per-second)"
        )
    values: dict[object, object] = {
        "gpus": gpus,
        "nodes": min(nodes, gpus),
        "epochs": speeds.epochs,
        "datasetBytes": size,
        "cacheBytes": max(granted_bytes, 1),
        "remoteBytesPerSecond": remote,
        "nicBytesPerSecond": speeds.nic_bytes_per_second,
        "warmSeconds": speeds.warm_seconds,
        "imagesPerSecondPerGpu": speeds.images_per_second_per_gpu,
        "datasetFiles": sum(status.total_files for status in statuses)
        if speeds.images_per_second_per_gpu
        else None,
    }
    prediction = predict(
        parse_scenario(
            where="the plan",
            values={key: value for key, value in values.items() if value is not None},
            options=_OPTIONS,
        ),
        where="the plan",
    )
    # What there is of it at the start shortens the first epoch by so much.
    cached_part = 1.0 if waits_for_data else _cached_part(datasets)
    if not waits_for_data and cached_part < 1.0:
        assumed.append(f"it starts with {cached_part:.0%} of what fits cached, as now")
    return Forecast(
        seconds=prediction.cold.seconds
        + cached_part * (prediction.preloaded.seconds - prediction.cold.seconds),
        direct_seconds=prediction.direct.seconds,
        cold_seconds=prediction.cold.seconds,
        cached_seconds=prediction.preloaded.seconds,
        bottleneck=prediction.cold.bottleneck.value,
        load_seconds=prediction.load_seconds * (1.0 - _cached_part(datasets)),
        assumed=tuple(assumed),
    )


def measured_rate(datasets: Sequence[Dataset]) -> float | None:
    """Bytes per second that the slowest source gave in its last load; None when no load was measured."""
    statuses = [dataset.status for dataset in datasets if dataset.status is not None]
    rates = [
        status.total_bytes / status.load_seconds
        for status in statuses
        if status.load_seconds and status.total_bytes
    ]
    return min(rates, default=None)


def _cached_part(datasets: Sequence[Dataset]) -> float:
    """The part of what shall be cached that is there, by bytes."""
    statuses = [dataset.status for dataset in datasets if dataset.status is not None]
    size = sum(status.total_bytes for status in statuses)
    if not size:
        return 0.0
    parts = (
        status.total_bytes * (status.loaded_ratio if status.wanted_bytes else status.cached_ratio)
        for status in statuses
    )
    return min(sum(parts) / size, 1.0)
