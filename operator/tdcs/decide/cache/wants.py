"""Wants: which data of a mount Datasets and Preloads want in the cache, and where.

A mount can have several: from Datasets that share a source and have their own placements, and from Preloads. The cache
holds the union of them.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.dataset import KEPT_BYTES, KEPT_PRELOADS, Dataset, Kept, PlacementMode, PlacementZones
from tdcs.api.durations import seconds_between
from tdcs.api.preload import Preload, PreloadStatus, Verify
from tdcs.api.quantities import to_bytes
from tdcs.api.selection import Selection
from tdcs.decide.cache.load_order import Subset


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One way in which the data of a mount is wanted.

    Attributes:
        key: who wants it, such as ``Dataset n/pictures``; a stable name.
        mode: how the bytes of a copy are on its nodes.
        copies: how many copies, each on nodes of its own.
        ids: the copies' ids, see `copy_ids`; empty: they are numbered.
        node_count: nodes of each copy; None: as `plan_copy` says.
        zones: how the nodes are in the zones of the cluster.
        node_selector: labels that its nodes must carry.
        nodes: the only nodes that may hold it; empty: any.
        subset: which part of the data.
        load: whether what is missing is loaded now; if not, what is there is kept all the same.
        bandwidth: bytes a second that its load may read from the source; None for no limit.
        verify: how much of what was loaded is compared with the source.
        check: identity of that comparison: another Preload of the same name has another one, and so
            has each Dataset that it is run for.
        verdict: whether it has ended, and found wrong copies. It is not made again, but it stays assigned: what it
            refused must not be brought again.
        ignores_failed: whether files that cannot be had are left out of the share that is there.
        alongside: key of the want that it is a further copy of: it is on other nodes than that one and its other
            copies, and only as a whole; empty for others.
        dataset: key of the own want of the Dataset that it belongs to.
    """

    key: str
    mode: PlacementMode = "Auto"
    copies: int = 1
    ids: tuple[str, ...] = ()
    node_count: int | None = None
    zones: PlacementZones = "Auto"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    subset: Subset = field(default_factory=Subset)
    load: bool = True
    bandwidth: int | None = None
    verify: Verify = "None"
    check: str = ""
    verdict: bool = False
    ignores_failed: bool = False
    alongside: str = ""
    dataset: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The selected folders and files; empty for all."""
        return self.subset.plain_paths


def copy_ids(*, ids: Sequence[str], count: int, in_use: Collection[str] = ()) -> tuple[str, ...]:
    """The ids of the desired copies. A copy keeps its id as long as it exists, as jobs and pods refer to it.

    Args:
        ids: the ids of the existing copies, in order.
        count: how many copies are desired.
        in_use: ids that jobs read. Surplus copies without readers leave first, the youngest of them before the others.
    """
    order = {copy_id: number for number, copy_id in enumerate(ids)}
    stay = sorted(ids, key=lambda copy_id: (copy_id not in in_use, order[copy_id]))[:count]
    kept_ids = sorted(stay, key=order.__getitem__)
    free = (str(number) for number in itertools.count() if str(number) not in order)
    return (*kept_ids, *itertools.islice(free, max(count - len(kept_ids), 0)))


def dataset_key(*, namespace: str, name: str) -> str:
    return f"{names.KIND_DATASET} {namespace}/{name}"


def preload_key(*, namespace: str, name: str) -> str:
    """The key of a Preload's want, which outlives the Preload while the Dataset keeps what it loaded."""
    return f"{names.KIND_PRELOAD} {namespace}/{name}"


def namespace_of(key: str) -> str:
    return key.partition(" ")[2].partition("/")[0]


def clone_key(*, namespace: str, name: str, copy: str) -> str:
    return f"Clone {namespace}/{name}/{copy}"


def of_clone(base: Want, *, namespace: str, name: str, copy: str) -> Want:
    """A further copy of what a Dataset wants, on nodes of its own."""
    return replace(
        base,
        key=clone_key(namespace=namespace, name=name, copy=copy),
        copies=1,
        ids=(copy,),
        alongside=base.key,
        check="",
        verify="None",
    )


def seconds_until(start: str | None, *, now: str) -> float:
    """Seconds until a start time; 0 when there is none or it is past."""
    return max(seconds_between(now, start), 0.0) if start is not None else 0.0


def of_dataset(*, namespace: str, name: str, dataset: Dataset, now: str) -> Want | None:
    """What a Dataset's own spec wants; None when its preload is off."""
    preload, placement = dataset.spec.preload, dataset.spec.placement
    if not preload.enabled:
        return None
    return Want(
        key=dataset_key(namespace=namespace, name=name),
        dataset=dataset_key(namespace=namespace, name=name),
        mode=placement.mode,
        copies=placement.copies,
        node_count=placement.node_count,
        zones=placement.zones,
        node_selector=placement.node_selector,
        subset=subset_of(preload),
        load=seconds_until(preload.start_time, now=now) == 0,
        ignores_failed=preload.failed_files == "Ignore",
        bandwidth=_rate(preload.bandwidth),
    )


def of_preload(
    *,
    namespace: str,
    name: str,
    uid: str,
    preload: Preload,
    dataset: Dataset,
    dataset_uid: str,
    now: str,
) -> Want:
    """The want of a Preload that has not completed, with its Dataset's placement unless its spec has another."""
    spec = preload.spec
    conditions = preload.status.conditions if preload.status else []
    failed, wrong = is_true(conditions, names.FAILED), has_wrong_copies(preload)
    compared = not failed or wrong
    return _placed(
        key=preload_key(namespace=namespace, name=name),
        of=dataset_key(namespace=namespace, name=preload.spec.dataset_ref.name),
        dataset=dataset,
        subset=subset_of(spec),
        copies=spec.copies,
        nodes=spec.nodes,
        load=not spec.suspend and not failed and seconds_until(spec.start_time, now=now) == 0,
        bandwidth=_rate(spec.bandwidth),
        verify=spec.verify if compared else "None",
        check=f"{uid}/{dataset_uid}" if compared else "",
        verdict=wrong,
    )


def of_kept(*, namespace: str, name: str, dataset: Dataset, kept_preload: Kept) -> Want:
    """The want for a completed Preload's data, which its Dataset keeps; `name` is the Dataset's."""
    return _placed(
        key=preload_key(namespace=namespace, name=kept_preload.name),
        of=dataset_key(namespace=namespace, name=name),
        dataset=dataset,
        subset=Subset(
            paths=tuple(kept_preload.paths),
            fraction=None if kept_preload.percent is None else kept_preload.percent / 100,
            amount=kept_preload.amount,
        ),
        copies=kept_preload.copies,
        nodes=kept_preload.nodes,
    )


def kept_now(
    *,
    previous: Iterable[Kept],
    preloads: Iterable[tuple[str, Preload]],
    generation: int,
    dataset_uid: str,
    limit: int = KEPT_PRELOADS,
    most_bytes: int = KEPT_BYTES,
) -> list[Kept]:
    """The completed Preloads whose data is kept: the newest ones, until the Dataset's spec changes.

    The function is idempotent: applied to its own result it returns the same.

    Args:
        previous: the entries of the status.
        preloads: the existing Preloads of the Dataset, by name.
        generation: the Dataset's generation.
        dataset_uid: the Dataset's uid: data of an earlier Dataset of the same name is not kept.
        limit: the maximum number of entries.
        most_bytes: their maximum size in the status.
    """
    existing = dict(preloads)
    kept_by_name = {
        entry.name: entry
        for entry in previous
        # A Preload that was created again under the same name replaces the entry.
        if entry.generation == generation
        and (entry.name not in existing or is_complete(existing[entry.name]))
    }
    for name, preload in existing.items():
        status = preload.status
        if status is None or not is_complete(preload) or status.dataset_generation != generation:
            continue
        if is_of_another(status, dataset_uid=dataset_uid):
            continue
        spec = preload.spec
        kept_by_name[name] = Kept(
            name=name,
            generation=generation,
            completion_time=status.completion_time,
            paths=spec.paths,
            percent=spec.percent,
            amount=spec.amount_bytes,
            copies=spec.copies,
            nodes=spec.nodes,
        )
    newest = sorted(
        kept_by_name.values(), key=lambda entry: (entry.completion_time or "", entry.name), reverse=True
    )
    sizes = itertools.accumulate(len(entry.model_dump_json().encode()) for entry in newest)
    fitting = [entry for entry, size in zip(newest, sizes, strict=True) if size <= most_bytes]
    return fitting[:limit][::-1]


def is_of_another(status: PreloadStatus, *, dataset_uid: str) -> bool:
    """Whether a Preload's result belongs to an earlier Dataset of the same name."""
    return status.dataset_uid not in ("", dataset_uid)


_AFTER_ALL_TIMES = "~"
"""Sorts after every time."""


def runs_again(
    preload: Preload,
    *,
    name: str,
    preloads: Iterable[tuple[str, Preload]],
    dataset_uid: str,
    limit: int = KEPT_PRELOADS,
) -> bool:
    """Whether a Preload that ended for an earlier Dataset of the same name runs again for this one. It does not if it
    completed and `limit` others completed later or have yet to run, as its data would not be kept.

    Args:
        preload: the Preload.
        name: its name.
        preloads: the existing Preloads of the Dataset, by name.
        dataset_uid: the Dataset's uid.
        limit: how many completed Preloads a Dataset keeps.
    """
    if not is_complete(preload):
        return True
    mine = _completion(name, preload, dataset_uid=dataset_uid)
    newer = sum(
        _completion(other_name, other_preload, dataset_uid=dataset_uid) > mine
        for other_name, other_preload in preloads
        if other_name != name
    )
    return newer < limit


def _completion(name: str, preload: Preload, *, dataset_uid: str) -> tuple[str, str]:
    """Sort key: failed Preloads first, then by completion time, then those that have yet to run."""
    status = preload.status
    if status is not None and is_complete(preload):
        return status.completion_time or "", name
    if (
        status is None
        or not is_true(status.conditions, names.FAILED)
        or is_of_another(status, dataset_uid=dataset_uid)
    ):
        return _AFTER_ALL_TIMES, name
    return "", name


def is_complete(preload: Preload) -> bool:
    return preload.status is not None and is_true(preload.status.conditions, names.COMPLETE)


def has_wrong_copies(preload: Preload) -> bool:
    """Whether a Preload has failed because copies differed from the source twice."""
    return preload.status is not None and any(
        condition.type == names.FAILED and condition.status == "True" and condition.reason == "VerifyFailed"
        for condition in preload.status.conditions
    )


def subset_of(selection: Selection) -> Subset:
    return Subset(paths=tuple(selection.paths), fraction=selection.fraction, amount=selection.amount_bytes)


def _placed(
    *,
    key: str,
    of: str,
    dataset: Dataset,
    subset: Subset,
    copies: int | None,
    nodes: Iterable[str],
    load: bool = True,
    bandwidth: int | None = None,
    verify: Verify = "None",
    check: str = "",
    verdict: bool = False,
) -> Want:
    placement, named = dataset.spec.placement, tuple(sorted(nodes))
    return Want(
        key=key,
        dataset=of,
        mode=placement.mode,
        copies=1 if named else copies or placement.copies,
        node_count=None if named else placement.node_count,
        zones=placement.zones,
        node_selector={} if named else placement.node_selector,
        nodes=named,
        subset=subset,
        load=load,
        bandwidth=bandwidth,
        verify=verify,
        check=check,
        verdict=verdict,
    )


def _rate(bandwidth: int | str | None) -> int | None:
    return None if bandwidth is None else max(to_bytes(bandwidth), 1)
