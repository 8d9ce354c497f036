"""What must hold during and after a run, whatever failed. Pure."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

from e2e.chaos.plan import SPARE_SECONDS
from e2e.support.read_on import AWAY

_ERROR_NUMBER = re.compile(r": \[Errno (\d+)\] ")
LEAST_SHARE = 1 / 4
"""Of the planned faults at least so many are brought about. A machine that does much else comes to about half."""
STABLE_FIELDS = (
    *("state", "totalFiles", "totalBytes", "cachedBytes", "physicalBytes", "wantedBytes", "loadedBytes"),
    *("mountPath", "claimName"),
)
"""Of a Dataset's status: what does not depend on the time."""


@dataclass(frozen=True, kw_only=True)
class FailedRead:
    """A read that gave an error, or other bytes than the source has.

    Attributes:
        at: when its round of reads ended, in seconds since 1970.
        error: the file, and what was wrong.
    """

    at: float
    error: str

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether a read of data on other nodes may fail so while parts fail. That a file does not exist, or may not
        be read, is never true."""
        number = _ERROR_NUMBER.search(self.error)
        return number is not None and int(number[1]) in AWAY

    def __str__(self) -> str:
        return f"{self.at:.0f} {self.error}"


@dataclass(frozen=True, kw_only=True)
class SlowRead:
    """A read that took longer than reads take on a busy machine without a fault.

    Attributes:
        seconds: how long.
        since: when its round of reads began, in seconds since 1970.
        until: when that ended.
    """

    seconds: float
    since: float
    until: float


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What a pod has read.

    Attributes:
        files: how many reads of a file.
        failed: those that gave an error or wrong bytes.
        printed: what else its program has printed: why it ended by itself.
        longest: the seconds of the longest read.
        slow: the longest read of each round, where that was slow.
        last: when the last round of reads ended, in seconds since 1970.
    """

    files: int = 0
    failed: tuple[FailedRead, ...] = ()
    printed: tuple[str, ...] = ()
    longest: float = 0.0
    slow: tuple[SlowRead, ...] = ()
    last: float = 0.0


ReadsByNode = Mapping[str, Mapping[str, Reads]]
"""What pods have read, by node and pod: a pod that is made again elsewhere has the same name there."""


Sums = Mapping[str, str | None]
"""SHA-256 sums of files by their paths; None where a file could not be read."""


def reads_of(text: str) -> Reads:
    """What a pod has written, see `e2e.support.read_on`; a line that a kill or a power cut broke does not count."""
    files, longest, last, failed, printed = 0, 0.0, 0.0, list[FailedRead](), list[str]()
    slow = list[SlowRead]()
    for line in text.splitlines():
        if not line.startswith("{"):
            printed.append(line)
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue
        files += record["files"]
        if (seconds := record["longest"]) > SPARE_SECONDS:
            # A round begins when the one before it has ended.
            since = last or record["at"] - seconds
            slow.append(SlowRead(seconds=seconds, since=since, until=record["at"]))
        longest, last = max(longest, seconds), max(last, record["at"])
        failed += [FailedRead(at=record["at"], error=error) for error in record["failed"]]
    return Reads(
        files=files,
        failed=tuple(failed),
        printed=tuple(printed),
        longest=longest,
        slow=tuple(slow),
        last=last,
    )


def wrong_reads(reads: ReadsByNode, *, native: Set[str]) -> list[str]:
    """What pods have met that they should not have, jobs' pods, too.

    That is any error on the nodes that hold the data; elsewhere wrong bytes, errors that say more than that the data
    is away, and what has ended the program.
    """
    return [
        f"{pod} on {node}: {read_error}"
        for node, pod, pod_reads in _in_order(reads)
        for read_error in (*pod_reads.failed, *pod_reads.printed)
        if node in native or not (isinstance(read_error, FailedRead) and read_error.may_be_elsewhere)
    ]


def failed_since(reads: ReadsByNode, *, since: float) -> list[str]:
    """Reads that failed in rounds that ended after a time, in seconds since 1970, on whatever node."""
    return [
        f"{pod} on {node}: {read_error}"
        for node, pod, pod_reads in _in_order(reads)
        for read_error in pod_reads.failed
        if read_error.at > since
    ]


def silent_readers(reads: ReadsByNode, *, readers: Set[str], since: float) -> list[str]:
    """The pods that have ended no round of reads since a time, in seconds since 1970: no line shows a read that
    hangs."""
    heard = {pod for _, pod, pod_reads in _in_order(reads) if pod_reads.last > since}
    return sorted(readers - heard)


def slow_reads(reads: ReadsByNode, *, native: Set[str], most: Callable[[float, float], float]) -> list[str]:
    """Reads on the nodes that hold the data that took longer than they may. `most`: the seconds that a read may take
    which was under way between two times."""
    return [
        f"{pod} on {node}: {slow_read.until:.0f} a read of {slow_read.seconds:.1f} s, over {longest:.0f} s"
        for node, pod, pod_reads in _in_order(reads)
        if node in native
        for slow_read in pod_reads.slow
        if slow_read.seconds > (longest := most(slow_read.since, slow_read.until))
    ]


def sums_of(text: str) -> list[Sums]:
    """What a pod has written in each round, see `e2e.chaos.read_version`. A line that a power cut has broken counts for
    nothing."""
    rounds = list[Sums]()
    for line in text.splitlines():
        try:
            rounds.append(json.loads(line))
        except ValueError:
            continue
    return rounds


def mixed_versions(
    rounds: Mapping[str, Sequence[Sums]], *, versions: Mapping[int, Mapping[str, str]]
) -> list[str]:
    """The pods that have read what is not one and the same version of a Dataset as long as they ran: its names, and its
    bytes where they could be read.

    Args:
        rounds: what each pod has read.
        versions: what the source has had, by the number of the version.
    """
    return [
        f"{pod} has read {_versions_read(pod_rounds, versions)}"
        for pod, pod_rounds in sorted(rounds.items())
        if not any(all(_is_of(sums, version) for sums in pod_rounds) for version in versions.values())
    ]


def _is_of(sums: Sums, version: Mapping[str, str]) -> bool:
    return sums.keys() == version.keys() and all(
        file_digest in {None, version[path]} for path, file_digest in sums.items()
    )


def _versions_read(rounds: Sequence[Sums], versions: Mapping[int, Mapping[str, str]]) -> str:
    """Of which versions the files of each round are, where that changes."""
    descriptions = list[str]()
    for sums in rounds:
        read = {path: file_digest for path, file_digest in sums.items() if file_digest is not None}
        numbers = {
            next((number for number, version in versions.items() if version.get(path) == file_digest), None)
            for path, file_digest in read.items()
        }
        names = ", ".join(
            sorted("no version" if number is None else f"version {number}" for number in numbers)
        )
        description = f"{len(sums)} files: {names}"
        if description not in descriptions[-1:]:
            descriptions.append(description)
    return "; ".join(descriptions)


def too_little(*, faults: int, planned: int, jobs: Collection[str], held: Set[str]) -> list[str]:
    """Why a run that found nothing wrong shows nothing.

    Args:
        faults: how many were brought about.
        planned: how many were planned.
        jobs: the TrainingJobs that have succeeded.
        held: the nodes that held the data that is read all the time, from the beginning to the end.
    """
    faults_of_run, least = [], max(math.ceil(planned * LEAST_SHARE), 1)
    if faults < least:
        faults_of_run.append(f"{faults} of {planned} planned faults were brought about, fewer than {least}")
    if not jobs:
        faults_of_run.append("no TrainingJob was created and succeeded")
    if not held:
        faults_of_run.append("no node that held the data from the beginning still does")
    return faults_of_run


def summary(reads: ReadsByNode) -> Iterator[str]:
    """What pods have read and met, a line for each."""
    for node, pod, pod_reads in _in_order(reads):
        met = [str(read_error) for read_error in (*pod_reads.failed, *pod_reads.printed)]
        reads_text = f"{pod_reads.files} reads, the longest {pod_reads.longest:.1f} s"
        yield f"{pod} on {node}: {reads_text}, {len(met)} errors: {met[:20]}"


def _in_order(reads: ReadsByNode) -> Iterator[tuple[str, str, Reads]]:
    for node, pods in sorted(reads.items()):
        for pod, pod_reads in sorted(pods.items()):
            yield node, pod, pod_reads


def placed_bytes(status: Mapping[str, Any]) -> dict[str, int]:
    """The bytes of a Dataset's copies on each node."""
    size_by_node: dict[str, int] = {}
    for copy in status.get("copies", ()):
        for node in copy["nodes"]:
            size_by_node[node["name"]] = size_by_node.get(node["name"], 0) + int(node["bytes"])
    return {node: size for node, size in size_by_node.items() if size}


def dataset_state(status: Mapping[str, Any]) -> dict[str, Any]:
    """What was decided about a Dataset."""
    return {**{name: status.get(name) for name in STABLE_FIELDS}, "nodes": placed_bytes(status)}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is different, by name."""
    return [
        f"{name}: before {before.get(name)}, after {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def missing_of(
    status: Mapping[str, Any], *, refreshed: str, files: int, size: int, nodes: int | None
) -> str | None:
    """What a Dataset lacks until it has what its source has now; None when nothing is missing.

    Args:
        status: the Dataset's.
        refreshed: the last request to list its source.
        files: how many files the source has.
        size: their bytes.
        nodes: how many nodes shall hold all of it; None where nothing is preloaded.
    """
    if status.get("refreshed") != refreshed:
        return f"its source was not listed again: {status.get('refreshed')}, not {refreshed}"
    if (status.get("totalFiles"), status.get("totalBytes")) != (files, size):
        return (
            f"{status.get('totalFiles')} files and {status.get('totalBytes')} bytes, not {files} and {size}"
        )
    if nodes is None:
        return None
    held = placed_bytes(status)
    if len(held) != nodes or set(held.values()) != {size}:
        return f"{held}, not {size} bytes on each of {nodes} nodes"
    return None if status.get("state") == "Ready" else f"its state is {status.get('state')}"


@dataclass(frozen=True, kw_only=True)
class Belongings:
    """What TDCS has on a node: paths.

    Attributes:
        blocks: of the worker, and those that it does not have yet.
        refused: notes of blocks that were found wrong.
        mounts: what is mounted for pods or inside of TDCS's folder.
        manifests: of agents, and on their way to views.
        registrations: versions that the remote-read client shows.
        views: folders of versions.
    """

    blocks: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    manifests: frozenset[str] = frozenset()
    registrations: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()


KINDS = tuple(field.name for field in fields(Belongings))


def belongings_of(text: str) -> Belongings:
    """What the node's script has printed: a kind and a path on each line."""
    paths_by_kind: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for line in text.splitlines():
        kind, _, path = line.partition(" ")
        paths_by_kind["refused" if kind == "refused" else f"{kind}s"].add(path)
    return Belongings(**{kind: frozenset(paths) for kind, paths in paths_by_kind.items()})


def left_over(
    before: Mapping[str, Belongings], after: Mapping[str, Belongings], *, kinds: Sequence[str]
) -> list[str]:
    """What is on the nodes that was not there before, of these kinds (fields of Belongings)."""
    return [
        f"{node}: {kind} {path}"
        for node, now in sorted(after.items())
        for kind in kinds
        for path in sorted(getattr(now, kind) - getattr(before.get(node, Belongings()), kind))
    ]
