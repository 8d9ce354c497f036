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
        what: the file, and what was wrong.
    """

    at: float
    what: str

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether a read of data on other nodes may fail so while parts fail. That a file does not exist, or may not
        be read, is never true."""
        number = _ERROR_NUMBER.search(self.what)
        return number is not None and int(number[1]) in AWAY

    def __str__(self) -> str:
        return f"{self.at:.0f} {self.what}"


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
            found = json.loads(line)
        except ValueError:
            continue
        files += found["files"]
        if (seconds := found["longest"]) > SPARE_SECONDS:
            # A round begins when the one before it has ended.
            since = last or found["at"] - seconds
            slow.append(SlowRead(seconds=seconds, since=since, until=found["at"]))
        longest, last = max(longest, seconds), max(last, found["at"])
        failed += [FailedRead(at=found["at"], what=one) for one in found["failed"]]
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
        f"{pod} on {node}: {one}"
        for node, pod, each in _in_order(reads)
        for one in (*each.failed, *each.printed)
        if node in native or not (isinstance(one, FailedRead) and one.may_be_elsewhere)
    ]


def failed_since(reads: ReadsByNode, *, since: float) -> list[str]:
    """Reads that failed in rounds that ended after a time, in seconds since 1970, on whatever node."""
    return [
        f"{pod} on {node}: {one}"
        for node, pod, each in _in_order(reads)
        for one in each.failed
        if one.at > since
    ]


def silent_readers(reads: ReadsByNode, *, readers: Set[str], since: float) -> list[str]:
    """The pods that have ended no round of reads since a time, in seconds since 1970: no line tells of a read that
    hangs."""
    heard = {pod for _, pod, each in _in_order(reads) if each.last > since}
    return sorted(readers - heard)


def slow_reads(reads: ReadsByNode, *, native: Set[str], most: Callable[[float, float], float]) -> list[str]:
    """Reads on the nodes that hold the data that took longer than they may. `most`: the seconds that a read may take
    which was under way between two times."""
    return [
        f"{pod} on {node}: {one.until:.0f} a read of {one.seconds:.1f} s, over {longest:.0f} s"
        for node, pod, each in _in_order(reads)
        if node in native
        for one in each.slow
        if one.seconds > (longest := most(one.since, one.until))
    ]


def sums_of(text: str) -> list[Sums]:
    """What a pod has written in each round, see `e2e.chaos.read_version`. A line that a power cut has broken counts for
    nothing."""
    found = list[Sums]()
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


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
        f"{pod} has read {_versions_read(each, versions)}"
        for pod, each in sorted(rounds.items())
        if not any(all(_is_of(sums, version) for sums in each) for version in versions.values())
    ]


def _is_of(sums: Sums, version: Mapping[str, str]) -> bool:
    return sums.keys() == version.keys() and all(
        found in {None, version[path]} for path, found in sums.items()
    )


def _versions_read(rounds: Sequence[Sums], versions: Mapping[int, Mapping[str, str]]) -> str:
    """Of which versions the files of each round are, where that changes."""
    said = list[str]()
    for sums in rounds:
        read = {path: found for path, found in sums.items() if found is not None}
        numbers = {
            next((number for number, version in versions.items() if version.get(path) == found), None)
            for path, found in read.items()
        }
        names = ", ".join(sorted("no version" if one is None else f"version {one}" for one in numbers))
        what = f"{len(sums)} files: {names}"
        if what not in said[-1:]:
            said.append(what)
    return "; ".join(said)


def too_little(*, faults: int, planned: int, jobs: Collection[str], held: Set[str]) -> list[str]:
    """Why a run that found nothing wrong shows nothing.

    Args:
        faults: how many were brought about.
        planned: how many were planned.
        jobs: the TrainingJobs that have succeeded.
        held: the nodes that held the data that is read all the time, from the beginning to the end.
    """
    found, least = [], max(math.ceil(planned * LEAST_SHARE), 1)
    if faults < least:
        found.append(f"{faults} of {planned} planned faults were brought about, fewer than {least}")
    if not jobs:
        found.append("no TrainingJob was created and succeeded")
    if not held:
        found.append("no node that held the data from the beginning still does")
    return found


def summary(reads: ReadsByNode) -> Iterator[str]:
    """What pods have read and met, a line for each."""
    for node, pod, each in _in_order(reads):
        met = [str(one) for one in (*each.failed, *each.printed)]
        yield f"{pod} on {node}: {each.files} reads, the longest {each.longest:.1f} s, {len(met)} errors: {met[:20]}"


def _in_order(reads: ReadsByNode) -> Iterator[tuple[str, str, Reads]]:
    for node, pods in sorted(reads.items()):
        for pod, each in sorted(pods.items()):
            yield node, pod, each


def placed_bytes(status: Mapping[str, Any]) -> dict[str, int]:
    """The bytes of a Dataset's copies on each node."""
    found: dict[str, int] = {}
    for copy in status.get("copies", ()):
        for node in copy["nodes"]:
            found[node["name"]] = found.get(node["name"], 0) + int(node["bytes"])
    return {node: size for node, size in found.items() if size}


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
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for line in text.splitlines():
        kind, _, path = line.partition(" ")
        found["refused" if kind == "refused" else f"{kind}s"].add(path)
    return Belongings(**{kind: frozenset(paths) for kind, paths in found.items()})


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
