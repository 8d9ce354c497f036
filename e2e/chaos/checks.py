"""What must hold during and after a run, whatever failed. Pure."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from e2e.read_on import WRONG

STABLE_FIELDS = (
    *("state", "totalFiles", "totalBytes", "cachedBytes", "physicalBytes", "wantedBytes", "loadedBytes"),
    *("mountPath", "claimName"),
)
"""Of a Dataset's status: what does not depend on the time."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What a pod has read.

    Attributes:
        files: how many reads of a file.
        wrong: reads that gave other bytes than the source has.
        failed: reads that gave an error, with the time, in seconds since 1970.
        longest: the seconds of the longest one.
        last: when the last round of reads ended, in seconds since 1970.
    """

    files: int = 0
    wrong: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    longest: float = 0.0
    last: float = 0.0


def reads_of(text: str) -> Reads:
    """What a pod has written, see `e2e.read_on`. A line that a kill or a power cut has broken counts for nothing."""
    files, longest, last, wrong, failed = 0, 0.0, 0.0, list[str](), list[str]()
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        files += found["files"]
        longest, last = max(longest, found["longest"]), max(last, found["at"])
        for one in found["failed"]:
            (wrong if one.endswith(WRONG) else failed).append(f"{found['at']:.0f} {one}")
    return Reads(files=files, wrong=tuple(wrong), failed=tuple(failed), longest=longest, last=last)


def wrong_reads(reads: Mapping[str, Reads], *, native: Set[str]) -> list[str]:
    """What was read that should not have been: wrong bytes anywhere, and errors of the pods that read natively."""
    found = [f"{pod}: {one}" for pod, each in sorted(reads.items()) for one in each.wrong]
    return found + [f"{pod}: {one}" for pod in sorted(native & reads.keys()) for one in reads[pod].failed]


def silent_readers(reads: Mapping[str, Reads], *, readers: Set[str], since: float) -> list[str]:
    """The pods that have ended no round of reads since a time, in seconds since 1970: no line tells of a read that
    hangs."""
    return sorted(pod for pod in readers if reads.get(pod, Reads()).last <= since)


def slow_reads(reads: Mapping[str, Reads], *, native: Set[str], most: float) -> list[str]:
    """Pods that read natively and for which a read took longer than so many seconds."""
    return [
        f"{pod}: a read of {reads[pod].longest:.1f} s, over {most:.0f} s"
        for pod in sorted(native & reads.keys())
        if reads[pod].longest > most
    ]


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
    """What TDCS has on a node: paths."""

    blocks: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()


def belongings_of(text: str) -> Belongings:
    """What the node's script has printed: a kind and a path on each line."""
    found: dict[str, set[str]] = {"block": set(), "view": set(), "mount": set()}
    for line in text.splitlines():
        kind, _, path = line.partition(" ")
        found[kind].add(path)
    return Belongings(
        blocks=frozenset(found["block"]), views=frozenset(found["view"]), mounts=frozenset(found["mount"])
    )


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
