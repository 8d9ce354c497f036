"""What a Dataset's status says: counts, copies, progress. Its conditions are in `dataset_conditions`."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import shorten
from tdcs.api.dataset import Copy, DatasetState, DatasetStatus, NodeBytes, OtherNamespaces
from tdcs.api.failures import FailedFile
from tdcs.decide.cache.mount_standing import UsersOfDataset
from tdcs.decide.place.holdings import Failures, Holdings, WantProgress
from tdcs.decide.place.other_tenants import OtherTenants
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.wanted_clones import Clone
from tdcs.model.humanize import human, percent, speed
from tdcs.model.printable_text import printable

Brought = Sequence[tuple[WantPlacement, WantProgress]]
"""What Preloads came to, and how far each is."""

Cloned = Sequence[tuple[Clone, WantPlacement, WantProgress]]
"""What further copies came to, and how far each is."""


def with_data(
    status: DatasetStatus,
    *,
    held: Holdings,
    placement: WantPlacement | None = None,
    progress: WantProgress | None = None,
    readable: WantProgress | None = None,
    brought: Brought = (),
    cloned: Cloned = (),
    failures: Failures | None = None,
    others: OtherTenants | None = None,
) -> DatasetStatus:
    """The status with its fields about the data: size, location, and progress of loads.

    Args:
        held: what is where.
        placement: what the Dataset's own spec came to; None when it wants nothing, or nothing is known yet.
        progress: how far that is.
        readable: how far by what can be read now, which its copies are counted by; the same when left out.
        brought: what its Preloads came to, and how much of that can be read.
        cloned: what its further copies came to, likewise.
        others: what is there for other namespaces; None when nobody else has the source.
    """
    has_files, done, lacks = bool(held.total_files), progress or WantProgress(), failures or Failures()
    now = readable or done
    # 100% of nothing would say that all is there.
    counts_bytes = done.counted_bytes > 0 or held.total_bytes == 0
    lacks_paths = placement is not None and bool(placement.totals.unknown_paths)
    wants_bytes = placement is not None and (done.counted_bytes > 0 or not lacks_paths)
    copies = copies_of(held=held, placement=placement, progress=now, brought=brought, cloned=cloned)
    # Without a placement it is what reads brought, which is one copy. An autoscaler must not see a copy go because its
    # only node restarts.
    own_copies = (
        [any(copy.values()) for copy in done.copies] if placement is not None else [bool(held.node_bytes)]
    )
    return status.model_copy(
        update={
            "total_bytes": held.total_bytes,
            "total_files": held.total_files,
            "cached_bytes": held.cached_bytes,
            "physical_bytes": max(sum(held.node_bytes.values()) - (others.bytes if others else 0), 0),
            "other_namespaces": OtherNamespaces(namespaces=others.namespaces, bytes=others.bytes)
            if others is not None and others.namespaces
            else None,
            "cached_ratio": ratio(held.cached_bytes, held.total_bytes) if has_files else 0.0,
            "cached": percent(held.cached_bytes, held.total_bytes) if has_files else None,
            "wanted_bytes": done.counted_bytes,
            "loaded_bytes": done.placed_bytes,
            "loaded_ratio": ratio(done.placed_bytes, done.counted_bytes) if wants_bytes else 0.0,
            "loaded": percent(done.placed_bytes, done.counted_bytes)
            if placement is not None and counts_bytes
            else None,
            "bytes_per_second": now.source_rate,
            "copied_bytes_per_second": now.peer_rate,
            "rate": speed(read=now.source_rate, copied=now.peer_rate),
            "size": human(held.total_bytes) if has_files else None,
            "copies": copies,
            "copy_count": sum(own_copies),
            "failed_file_count": lacks.count,
            "failed_files": [
                FailedFile(path=printable(file.path), reason=shorten(printable(file.reason)))
                for file in lacks.files
            ],
        }
    )


def without_data(status: DatasetStatus) -> DatasetStatus:
    """The status of a Dataset for which the cache holds nothing: no grant, no claim, no copy."""
    lost = {
        "grant": None,
        "claim_name": "",
        "load_seconds": None,
        "source_bandwidth": None,
        "left_with_workers": None,
    }
    return with_data(status, held=Holdings()).model_copy(update={**lost, "copies": []})


def remembered(obj: Mapping[str, Any], *, state: DatasetState) -> DatasetStatus:
    """The last status with another state, for a time in which no new data is available."""
    status = known_of(obj)
    still = {"bytes_per_second": 0, "copied_bytes_per_second": 0, "rate": None}
    return status.model_copy(update={"state": state, **still})


def known_of(obj: Mapping[str, Any]) -> DatasetStatus:
    """The status as it is; an empty one when another version wrote one that this operator cannot read."""
    try:
        return DatasetStatus.model_validate(obj.get("status") or {})
    except ValidationError:
        return DatasetStatus()


def with_use(status: DatasetStatus, use: UsersOfDataset) -> DatasetStatus:
    """A status with who uses the Dataset, and when it was used."""
    return status.model_copy(
        update={
            "active_jobs": len(use.jobs.active),
            "waiting_jobs": len(use.jobs.waiting),
            "in_use": use.mounted,
            "used_by": list(use.users),
            "last_used_time": use.last_used,
            "uses": list(use.uses),
        }
    )


def selector_of(name: str) -> str:
    """What the scale subresource needs next to the number of copies; no pod has this label."""
    return f"{names.LABEL_DATASET_NAME}={name}"


def copies_of(
    *,
    held: Holdings,
    placement: WantPlacement | None,
    progress: WantProgress,
    brought: Brought = (),
    cloned: Cloned = (),
) -> list[Copy]:
    """The copies of the Dataset's own placement, with what of each is on its nodes and what is still to come; then
    further ones that its jobs need; after them what is on nodes to which Preloads brought some of it. Without a
    placement, all nodes."""
    if placement is None:
        nodes = [NodeBytes(name=name, bytes=size) for name, size in sorted(held.node_bytes.items())]
        return [Copy(id="0", nodes=nodes)]
    own_copies = _of_want(placement, progress)
    further = _brought(held=held, own_copies=own_copies, brought=brought)
    return [
        *(Copy(id=copy.id, nodes=nodes) for copy, nodes in zip(placement.copies, own_copies, strict=True)),
        *(
            Copy(id=clone.id, nodes=nodes, idle_since=clone.idle_since)
            for clone, want_placement, done in cloned
            for nodes in _of_want(want_placement, done)
        ),
        *([Copy(id=names.PRELOADED_COPY, nodes=further)] if further else ()),
    ]


def ratio(part: int, whole: int) -> float:
    """Part over whole, rounded down to four digits so that 1 means all; 1 for an empty whole."""
    if whole <= 0 or part >= whole:
        return 1.0
    return int(part * 10_000 / whole) / 10_000


def _of_want(placement: WantPlacement, progress: WantProgress) -> list[list[NodeBytes]]:
    """Present and arriving bytes of each copy of a want, by node."""
    coming = placement.want.load and progress.missing_bytes > 0
    copies = []
    for held in progress.copies:
        nodes = []
        for name in sorted(held):
            arriving = max(placement.bytes_for(name) - held[name], 0) if coming else 0
            nodes.append(NodeBytes(name=name, bytes=held[name], arriving=arriving or None))
        copies.append(_with_data(nodes))
    return copies


def _brought(
    *, held: Holdings, own_copies: Sequence[Sequence[NodeBytes]], brought: Brought
) -> list[NodeBytes]:
    """The data of all Preloads as one copy, so that the number of nodes bounds the status.

    What several of them, or the placement too, have on a node is added, as they may be parts of the data that go
    together; where they are the same, it is no more than is there.
    """
    present_bytes: dict[str, int] = {}
    arriving: dict[str, int] = {}
    for placement, progress in brought:
        for nodes in _of_want(placement, progress):
            for node in nodes:
                present_bytes[node.name] = present_bytes.get(node.name, 0) + node.bytes
                arriving[node.name] = max(arriving.get(node.name, 0), node.arriving or 0)
    for node in itertools.chain.from_iterable(own_copies):
        if node.name in present_bytes:
            present_bytes[node.name] += node.bytes
    brought_nodes = [
        NodeBytes(
            name=name,
            bytes=min(present_bytes[name], held.node_bytes.get(name, 0)),
            arriving=arriving[name] or None,
        )
        for name in sorted(present_bytes)
    ]
    return _with_data(brought_nodes)


def _with_data(nodes: Sequence[NodeBytes]) -> list[NodeBytes]:
    return [node for node in nodes if node.bytes or node.arriving]
