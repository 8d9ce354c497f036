"""Tunes TVM's own code of a model within a budget of time, and keeps what was found.

Records of trials are kept in the cache folder for each model, target and version of TVM: a second build begins with
them, and so does one after a tuning that was interrupted. The best ones are a file of the artifact.
"""

import fcntl
import hashlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from tdcs_train.artifacts.manifest import FileSpec, Manifest, TuningSpec
from tdcs_train.artifacts.node import this_node
from tdcs_train.artifacts.session import CompiledModel
from tdcs_train.artifacts.targets import Target
from tdcs_train.compile.toolchain import cache_folder
from tdcs_train.errors import InputError

READY = "ready"
"""What the process that tunes prints before its first trial; the budget begins then."""
WORKLOADS, TRIALS = "database_workload.json", "database_tuning_record.json"
"""The files of TVM's database."""
FAILED = 1e9
"""Seconds that stand for a trial that did not run."""
REMEDY = "give the file records-*.json of an artifact of this model"
TITLES = {"model": "model", "target": "target", "tvm": "version of TVM"}
"""Of the fields of an origin."""
ROUNDS = 7
"""In which tuned and untuned code are measured in turns."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is tuned, for the process that does it."""

    source: str
    shapes: dict[str, tuple[int, ...]]
    target: str
    backends: tuple[str, ...]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What records are of: they are of no use to another model, target or version of TVM."""

    model: str
    target: str
    tvm: str


Part = Annotated[int, Meta(ge=0)]


class Records(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file of records of an artifact: lines of TVM's database, and what they are of."""

    origin: Origin
    workloads: tuple[tuple[str, str], ...]
    records: tuple[tuple[Part, tuple[Any, tuple[float, ...] | None, Any, Any]], ...]


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Milliseconds of a run of the model, untuned and tuned, and how many times as fast the latter is."""

    untuned: float
    tuned: float
    gain: float


def check(processor: Target) -> None:
    """Whether code for this target can be tuned here.

    Raises:
        InputError: It cannot; the message says why.
    """
    if processor not in (node := this_node()).targets:
        targets = ", ".join(target.name for target in node.targets) or "none"
        raise InputError(
            f"--tune measures what it compiles, and this node cannot run {processor.name} (it runs {targets}): tune "
            "on a node of that target"
        )
    import tvm

    if not tvm.runtime.enabled("llvm"):
        raise InputError("--tune needs a TVM with LLVM: pip install 'tdcs-train[compile]' has one")


def check_shapes(manifest: Manifest) -> None:
    """Whether all sizes of a model are known.

    Raises:
        InputError: One is not; the message names its input.
    """
    for spec in manifest.inputs:
        if spec.shape is None or None in spec.shape:
            raise InputError(
                f"--tune needs to know all sizes, and the input {spec.name} has an open one: give --shape "
                f"{spec.name}=N,N,..."
            )


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search has found, in a folder."""

    folder: Path
    origin: Origin
    earlier: int
    new: int

    def database(self) -> Any:
        """TVM's database of the records."""
        from tvm.s_tir import meta_schedule as ms

        return ms.database.JSONDatabase(work_dir=str(self.folder))

    def best(self, path: Path) -> Path:
        """Write the best record of each part to a file."""
        workloads = tuple(msgspec.json.decode(line) for line in _lines(self.folder / WORKLOADS))
        records = best_of([msgspec.json.decode(line) for line in _lines(self.folder / TRIALS)]).values()
        document = Records(origin=self.origin, workloads=workloads, records=tuple(records))
        path.write_bytes(msgspec.json.encode(document))
        return path

    def spec(self, speeds: Speeds, *, minutes: float, records: FileSpec) -> TuningSpec:
        """For the manifest."""
        return TuningSpec(
            minutes=minutes,
            trials=self.new,
            earlier_trials=self.earlier,
            parts=len(best_of([msgspec.json.decode(line) for line in _lines(self.folder / TRIALS)])),
            untuned_milliseconds=round(speeds.untuned, 4),
            tuned_milliseconds=round(speeds.tuned, 4),
            gain=round(speeds.gain, 3),
            records=records,
        )


def best_of(records: Iterable[Any]) -> dict[int, Any]:
    """The fastest record of each part, by the part's number; what could not be run is none."""
    best: dict[int, tuple[float, Any]] = {}
    for record in records:
        part, (_, seconds, *_) = record
        mean = statistics.fmean(seconds) if seconds else FAILED
        if mean < min(FAILED, best[part][0] if part in best else FAILED):
            best[part] = (mean, record)
    return {part: record for part, (_, record) in best.items()}


@contextmanager
def searched(
    subject: Subject, untuned: CompiledModel, *, minutes: float, records: Path | None = None
) -> Iterator[Found]:
    """Tune for so many minutes; what was found by then and before.

    Raises:
        InputError: Nothing was found, another process tunes here, or a size of the model is not known.
    """
    manifest = untuned.manifest
    check_shapes(manifest)
    origin = Origin(model=manifest.model.digest, target=subject.target, tvm=manifest.tvm)
    folder = cache_folder() / "tuning"
    with _locked(folder):
        place = folder / f"{manifest.model.digest[:16]}-{subject.target}-tvm-{manifest.tvm}"
        place.mkdir(exist_ok=True)
        _mend(place)
        if records is not None and not trials(place):
            take_in(records, place, origin=origin)
        earlier = trials(place)
        new = tune(subject, folder=place, seconds=60 * minutes)
        if not best_of(msgspec.json.decode(line) for line in _lines(place / TRIALS)):
            raise InputError(
                f"the {60 * minutes:g} s of --tune were over before the first trial that ran: nothing was written. "
                "Give it more minutes"
            )
        yield Found(folder=place, origin=origin, earlier=earlier, new=new)


def take_in(records: Path, folder: Path, *, origin: Origin) -> None:
    """Begin with the records of an artifact.

    Raises:
        InputError: The file has none, was damaged, or is of another model, target or version of TVM.
    """
    from tvm.s_tir import meta_schedule as ms

    document = read_records(records, origin=origin)
    with tempfile.TemporaryDirectory(prefix="tdcs-train-") as name:
        scratch = Path(name)
        for file, lines in ((WORKLOADS, document.workloads), (TRIALS, document.records)):
            (scratch / file).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        try:
            ms.database.JSONDatabase(work_dir=name).get_all_tuning_records()
        except Exception as error:  # of many kinds, from TVM's Python and C++ code
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise InputError(
                f"{records} was damaged: TVM {origin.tvm} cannot read its records ({reason[:200]}); {REMEDY}"
            ) from error
        for file in (WORKLOADS, TRIALS):
            shutil.copyfile(scratch / file, folder / file)


def read_records(path: Path, *, origin: Origin) -> Records:
    """The file of records of an artifact.

    Raises:
        InputError: It has none, or those of another model, target or version of TVM.
    """
    try:
        document = msgspec.json.decode(path.read_bytes(), type=Records)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise InputError(f"{path} has no records of tuning ({error}): {REMEDY}") from error
    for name in Origin.__struct_fields__:
        recorded, expected = getattr(document.origin, name), getattr(origin, name)
        if recorded != expected:
            raise InputError(
                f"{path} has records of another {TITLES[name]}: {recorded[:16]}, and not {expected[:16]}; {REMEDY}, "
                "or leave --records out"
            )
    for number, (part, (_, seconds, _, _)) in enumerate(document.records):
        if part >= len(document.workloads) or any(second <= 0 for second in seconds or ()):
            raise InputError(
                f"{path} was damaged: its record {number} has no part of the model, or no time; {REMEDY}"
            )
    return document


def digest_of(records: Records) -> str:
    """For the key of an artifact."""
    return hashlib.sha256(msgspec.json.encode(records)).hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other tunings off this node.

    Raises:
        InputError: There is one, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"the records of tuning cannot be kept in {folder}: {error.strerror}; set XDG_CACHE_HOME to another folder"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InputError(
            "another process tunes on this node, and two would disturb each other's measurements: wait for it"
        ) from error
    finally:
        os.close(handle)


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _mend(folder: Path) -> None:
    """Remove what a process that was ended had begun to write."""
    for name in (WORKLOADS, TRIALS):
        path = folder / name
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def trials(folder: Path) -> int:
    """The number of records in a folder."""
    path = folder / TRIALS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def tune(subject: Subject, *, folder: Path, seconds: float) -> int:
    """Try schedules until the time is over; the number of new records.

    Raises:
        InputError: The process that tunes has failed without a trial; the message has its last line.
    """
    before, end = trials(folder), None
    while end is None or time.monotonic() < end:
        begun = trials(folder)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tdcs_train.compile.tuning_process",
                    msgspec.json.encode(subject).decode(),
                    str(folder),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
            )
            try:
                assert process.stdout is not None
                while (line := process.stdout.readline()) and line.strip() != READY.encode():
                    pass
                end = end or time.monotonic() + seconds
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            finally:
                if process.poll() is None:
                    process.kill()
                code = process.wait()
        _mend(folder)
        if code == 0:
            break
        if code != -signal.SIGKILL and trials(folder) == begun:
            lines = (folder / "log").read_text(errors="replace").strip().splitlines() or ["it gave no reason"]
            raise InputError(f"tuning failed: {lines[-1][:300]}; the rest is in {folder / 'log'}")
    return trials(folder) - before


def compared(untuned: CompiledModel, tuned: CompiledModel, inputs: Mapping[str, Any] | None) -> Speeds:
    """Both in turns, so that what else the machine does counts for both alike."""
    values = inputs or random_inputs(untuned.manifest)
    times: dict[str, list[float]] = {"untuned": [], "tuned": []}
    models = {"untuned": untuned, "tuned": tuned}
    counts = {}
    for name, model in models.items():
        model.run(values)
        begin = time.perf_counter()
        model.run(values)
        counts[name] = max(1, min(50, int(0.02 / (time.perf_counter() - begin))))
    for _ in range(ROUNDS):
        for name, model in models.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                model.run(values)
            times[name].append((time.perf_counter() - begin) / counts[name])
    ratios = [slow / fast for slow, fast in zip(times["untuned"], times["tuned"], strict=True)]
    return Speeds(
        untuned=1000 * statistics.median(times["untuned"]),
        tuned=1000 * statistics.median(times["tuned"]),
        gain=statistics.median(ratios),
    )


def random_inputs(manifest: Manifest) -> dict[str, Any]:
    """Values for the inputs of a model; whole numbers are 0, which is an index into any table."""
    source = np.random.default_rng(0)
    return {
        spec.name: np.asarray(source.standard_normal([size or 1 for size in spec.shape or ()]), spec.dtype)
        if spec.dtype.startswith("float")
        else np.zeros([size or 1 for size in spec.shape or ()], spec.dtype)
        for spec in manifest.inputs
    }
