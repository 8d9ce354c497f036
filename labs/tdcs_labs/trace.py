"""Job traces: CSV files with the columns timestamp, duration, num_gpus and cluster.

The format is that of the Philly trace as published with AdaptDL (OSDI 2021): one submission per row,
in the order of time; durations are in seconds; `cluster` names the virtual cluster, the tenant.
A column `priority`, which that trace lacks, has whole
numbers, larger ones for more important jobs. Further columns are ignored.
"""

import csv
import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

from tdcs.api.failures import InputError

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
#: The largest number that means anything: in seconds some 300 years.
MOST = 1e10


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceJob:
    """One submission: seconds since the first one, seconds of training, GPUs, tenant, priority."""

    submitted: float
    duration: float
    gpus: int
    tenant: str
    priority: int = 0


def read_trace(*, path: Path, limit: int | None = None, most_gpus: int | None = None) -> list[TraceJob]:
    """Read a trace, at most `limit` jobs of it.

    Raises:
        InputError: the file cannot be read, has no jobs, or a row is wrong: a column is missing or repeated, a value
            is no number or not positive, rows are out of order, or a job asks for more than `most_gpus`.
    """
    try:
        # Spreadsheets begin a CSV file with a byte order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _rows(path=path, reader=csv.DictReader(file), limit=limit, most_gpus=most_gpus)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give the path of a trace CSV"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path}: is not a CSV file in UTF-8 ({error}); export the trace as plain CSV"
        ) from error


def _rows(
    *, path: Path, reader: "csv.DictReader[str]", limit: int | None, most_gpus: int | None
) -> list[TraceJob]:
    if reader.fieldnames is None:
        raise InputError(f"{path}: is empty; a trace has a header and a row per job ({', '.join(COLUMNS)})")
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(reader.fieldnames) == 1 and separator in reader.fieldnames[0]:
            raise InputError(
                f"{path}, row 1: the cells are separated by {called}; export the trace with commas between cells"
            )
    missing = [name for name in COLUMNS if name not in reader.fieldnames]
    if missing:
        raise InputError(
            f"{path}, row 1: the header lacks {_listed(missing)}; a trace needs the columns {', '.join(COLUMNS)}"
        )
    repeated = [name for name in COLUMNS if reader.fieldnames.count(name) > 1]
    if repeated:
        raise InputError(
            f"{path}, row 1: the header has {_listed(repeated)} more than once; keep one of each"
        )
    jobs: list[TraceJob] = []
    first = last = None
    for row in reader:
        if limit is not None and len(jobs) >= limit:
            break
        where = f"{path}, row {reader.line_num}"
        _check_cells(where=where, row=row, columns=len(reader.fieldnames))
        when = _time(where=where, text=row["timestamp"])
        if last is not None and when < last:
            raise InputError(
                f"{where}: timestamp {row['timestamp']} is earlier than that of the row before; "
                "sort the file by timestamp"
            )
        first, last = first if first is not None else when, when
        gpus = _number(where=where, name="num_gpus", text=row["num_gpus"])
        if gpus != int(gpus):
            raise InputError(
                f"{where}: num_gpus must be a whole number, got {row['num_gpus']}; correct the row"
            )
        if most_gpus is not None and gpus > most_gpus:
            raise InputError(
                f"{where}: num_gpus is {int(gpus)} but the cluster has only {most_gpus} GPUs; "
                "remove the row or raise --nodes or --gpus-per-node"
            )
        tenant = (row["cluster"] or "").strip()
        if not tenant:
            raise InputError(f"{where}: cluster is empty; name the job's virtual cluster")
        jobs.append(
            TraceJob(
                submitted=when - first,
                duration=_number(where=where, name="duration", text=row["duration"]),
                gpus=int(gpus),
                tenant=tenant,
                priority=_priority(where=where, text=row.get("priority")),
            )
        )
    if not jobs:
        raise InputError(f"{path}: has a header but no jobs; add a row per job")
    return jobs


def _check_cells(*, where: str, row: dict[str, str], columns: int) -> None:
    """Refuse rows with more or fewer cells than the header: a comma too many shifts cells to other columns."""
    # The reader puts them under the key None, as a list, although its type does not say so.
    beyond = cast("dict[str | None, list[str]]", row).get(None)
    if beyond:
        raise InputError(
            f"{where}: has {columns + len(beyond)} cells but the header names {columns} columns; remove "
            f"{', '.join(repr(cell) for cell in beyond[:3])} or quote the cell with a comma in it"
        )
    # The reader fills a short row up with None.
    missing_columns = [name for name, cell in cast("dict[str, str | None]", row).items() if cell is None]
    if missing_columns:
        raise InputError(
            f"{where}: row has {columns - len(missing_columns)} of {columns} cells; add {', '.join(missing_columns)}"
        )


def _number(*, where: str, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise InputError(f"{where}: {name} is not a number: {text!r}; correct the row") from None
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{where}: {name} must be above zero, got {text}; correct or remove the row")
    if value > MOST:
        raise InputError(f"{where}: {name} must be at most {MOST:.0e}, got {text}; correct or remove the row")
    return value


def _time(*, where: str, text: str | None) -> float:
    try:
        when = datetime.fromisoformat((text or "").strip())
    except ValueError:
        raise InputError(
            f"{where}: timestamp is not a date and time: {text!r}; write it as 2017-10-01 13:45:00"
        ) from None
    try:
        # A time without a zone is read as if it were UTC: only differences matter.
        moment = when.replace(tzinfo=None) - (when.utcoffset() or _ZERO)
    except OverflowError:
        raise InputError(
            f"{where}: timestamp {text} is outside the years 1 to 9999 in UTC; correct the row"
        ) from None
    return (moment - _EPOCH).total_seconds()


_EPOCH = datetime(1970, 1, 1)
_ZERO = _EPOCH - _EPOCH


def _priority(*, where: str, text: str | None) -> int:
    """A whole number; 0 where nothing is said."""
    if text is None or not text.strip():
        return 0
    try:
        priority = int(text)
    except ValueError:
        raise InputError(f"{where}: priority must be a whole number, got {text}; correct the row") from None
    if abs(priority) > MOST:
        raise InputError(f"{where}: priority {text} is beyond {MOST:.0e}; correct the row")
    return priority


def _listed(names: list[str]) -> str:
    return f"the column{'s' if len(names) > 1 else ''} {', '.join(names)}"
