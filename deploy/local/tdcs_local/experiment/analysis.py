"""What runs came to: medians over the repetitions, errors of the predictions, and the bars."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tdcs.model.humanize import counted
from tdcs_local.experiment.plan import Configuration, Run

GAIN, NO_LOSS, ERROR = 3.0, 0.97, 0.15
"""The bars: shared over direct where the link is the bound, where it is not, and how far a prediction may be off."""
BOUND = 3.5
"""The link is the bound where reading directly is predicted to take so many times the compute time."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run, what was predicted of it before it began, and what it did.

    ``seconds`` are those of each job, from the first read to the end of the last batch; ``source_bytes`` left the store
    meanwhile; ``load_seconds`` is what it took to have a Dataset loaded before, which ``seconds`` does not count.
    ``load_average`` is the machine's over the last minute when the run ended; ``late_seconds`` are between the
    beginning of the first job and of the last. ``epochs`` are the seconds of each epoch of each job.
    """

    run: Run
    predicted: float
    simulated: float | None
    seconds: tuple[float, ...]
    images: int
    source_bytes: int
    load_seconds: float = 0.0
    load_average: float = 0.0
    late_seconds: float = 0.0
    epochs: tuple[tuple[float, ...], ...] = ()

    @property
    def mean_seconds(self) -> float:
        """Of a job."""
        return sum(self.seconds) / len(self.seconds)

    def document(self) -> dict[str, Any]:
        """As it stands in the results."""
        return asdict(self)


def all_measured(document: Mapping[str, Any]) -> list[Measured]:
    """The runs of a document of results, but one that was broken off."""
    return [measured_of(entry) for entry in document["runs"] if "seconds" in entry]


def run_of(document: Mapping[str, Any]) -> Run:
    """The run of an entry of the results."""
    return Run(**{**document["run"], "configuration": Configuration(document["run"]["configuration"])})


def measured_of(document: Mapping[str, Any]) -> Measured:
    """The opposite of `Measured.document`."""
    epochs = tuple(map(tuple, document.get("epochs", ())))
    return Measured(
        **{**document, "run": run_of(document), "seconds": tuple(document["seconds"]), "epochs": epochs}
    )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A configuration with so many jobs over a link: medians over the repetitions."""

    configuration: Configuration
    jobs: int
    mbit: int
    repetitions: int
    seconds: float
    images_per_second: float
    predicted: float
    simulated: float | None
    over_direct: float
    source_bytes: float
    load_seconds: float

    @property
    def error(self) -> float:
        """Of `tdcs predict`: above zero when the job took longer."""
        return self.seconds / self.predicted - 1.0

    @property
    def simulator_error(self) -> float | None:
        """Of the simulator, in the same way."""
        return None if self.simulated is None else self.seconds / self.simulated - 1.0


def rows(measured: Sequence[Measured]) -> list[Row]:
    """The table: by link, number of jobs and configuration. Without a direct run there is nothing to compare with."""
    keys = sorted({(measurement.run.mbit, measurement.run.jobs) for measurement in measured})
    table = []
    for mbit, jobs in keys:
        cell = [
            measurement
            for measurement in measured
            if (measurement.run.mbit, measurement.run.jobs) == (mbit, jobs)
        ]
        direct = _seconds(
            [measurement for measurement in cell if measurement.run.configuration is Configuration.DIRECT]
        )
        for configuration in Configuration:
            runs = [measurement for measurement in cell if measurement.run.configuration is configuration]
            if not runs:
                continue
            seconds = _seconds(runs)
            table.append(
                Row(
                    configuration=configuration,
                    jobs=jobs,
                    mbit=mbit,
                    repetitions=len(runs),
                    seconds=seconds,
                    images_per_second=jobs * runs[0].images / seconds,
                    predicted=runs[0].predicted,
                    simulated=runs[0].simulated,
                    over_direct=direct / seconds,
                    source_bytes=median(run.source_bytes for run in runs),
                    load_seconds=median(run.load_seconds for run in runs),
                )
            )
    return table


def _seconds(runs: Sequence[Measured]) -> float:
    return median(run.mean_seconds for run in runs)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar, whether it was met, and by what."""

    text: str
    met: bool
    outcome: str


def bars(table: Sequence[Row], *, compute_seconds: float) -> list[Bar]:
    """The bars; ``compute_seconds`` are those of a whole job. The link is the bound by what was predicted."""
    direct = {(row.mbit, row.jobs): row for row in table if row.configuration is Configuration.DIRECT}
    shared = [row for row in table if row.configuration is Configuration.SHARED]
    bound = [row for row in shared if direct[row.mbit, row.jobs].predicted >= BOUND * compute_seconds]
    free = [row for row in shared if direct[row.mbit, row.jobs].predicted <= compute_seconds * 1.01]
    bars = []
    for rows_, least, where in (
        (bound, GAIN, "is the bound"),
        (free, NO_LOSS, "is not the bound"),
    ):
        if rows_:
            lowest = min(row.over_direct for row in rows_)
            bars.append(
                Bar(
                    text=f"shared over direct at least {least:g} where the link {where}",
                    met=lowest >= least,
                    outcome=f"least {lowest:.2f}",
                )
            )
    worst = max(table, key=lambda row: abs(row.error))
    where = f"{worst.configuration}, {counted(worst.jobs, 'job')}, {worst.mbit} Mbit/s"
    bars.append(
        Bar(
            text=f"`tdcs predict` within {ERROR:.0%}",
            met=abs(worst.error) <= ERROR,
            outcome=f"worst {worst.error:+.1%} ({where})",
        )
    )
    return bars
