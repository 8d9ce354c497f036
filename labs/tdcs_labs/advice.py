"""What to do about a job's dataset, in sentences, from the predicted times."""

from dataclasses import dataclass

from tdcs.decide.job.job_time import Prediction
from tdcs.decide.place.reading_speed import Bottleneck
from tdcs.model.humanize import duration
from tdcs.model.humanize import times as ratio

#: A gain below this is none: the model is not that exact.
_WORTH = 1.01


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    """Seconds of the job: read directly, from an empty cache, preloaded, and with everything cached."""

    direct: float
    cold: float
    preloaded: float
    warm: float


def advise(prediction: Prediction) -> str:
    """Say whether to cache, to enlarge the cache and to preload."""
    times = _Times(
        direct=prediction.direct.seconds,
        cold=prediction.cold.seconds,
        preloaded=prediction.preloaded.seconds,
        warm=prediction.warm.seconds,
    )
    load, fraction, limit = prediction.load_seconds, prediction.cached_fraction, prediction.warm.bottleneck
    best = times.direct / times.warm
    if best < _WORTH:
        return "The job is as fast when it reads directly: caching its dataset gains less than 1 %."
    words: list[str] = []
    worth = times.direct / times.preloaded >= _WORTH
    if worth:
        words += _gain(times=times, load=load)
    if fraction < 1.0:
        words.append(
            f"Only {_part(fraction)} of the dataset fits{'' if worth else ', which gains less than 1 %'}; with room "
            f"for all of it the job would run {ratio(best)} as fast as when it reads "
            f"directly, with the {duration(load / fraction, alongside=times.direct)} of loading it first "
            f"{ratio(times.direct / (load / fraction + times.warm))}."
        )
    saved = times.cold - times.preloaded
    if saved > 0.01 * times.cold:
        takes, shorter = (duration(seconds, alongside=times.direct) for seconds in (load, saved))
        words.append(f"Loading takes {takes} and makes the run {shorter} shorter:")
        words.append(
            "preload, even if the job has to wait for it."
            if saved > load
            else "do it while the job waits for GPUs."
        )
    if limit is Bottleneck.NETWORK:
        words.append("Fully cached, the nodes' links limit it: replicate the dataset on the job's nodes.")
    if limit is Bottleneck.CPU:
        words.append(
            "Fully cached, the nodes' processors limit it: run fewer jobs on a node, or read by a client that takes "
            "less processor time a file."
        )
    return " ".join(words)


def _gain(*, times: _Times, load: float) -> list[str]:
    """What the cache gains, and whether that is worth it for this job alone."""
    loaded_first, takes = load + times.preloaded, duration(load, alongside=times.direct)
    first = (
        f"Loaded before it starts, the job runs {ratio(times.direct / times.preloaded)} as fast as when it reads "
        f"directly; with the {takes} of loading {ratio(times.direct / loaded_first)}, from an empty cache "
        f"{ratio(times.direct / times.cold)}."
    )
    if times.direct / min(loaded_first, times.cold) >= _WORTH:
        return [first, "Cache the dataset."]
    alone = (
        "For this job alone that gains nothing: cache the dataset if it can be loaded while the job waits for "
        "GPUs, or if other jobs read it too."
    )
    return [first, alone]


def _part(fraction: float) -> str:
    """A part that is neither nothing nor all: less than 1 %, 80 %, at most 99 %."""
    return "less than 1 %" if fraction < 0.005 else f"{max(min(round(100 * fraction), 99), 1)} %"
