"""What the cache manager says of a Dataset, in words that say what to do."""

from collections.abc import Sequence

import numpy as np

from tdcs.api import names
from tdcs.api.conditions import (
    COPIES_ABOVE_MAXIMUM,
    EVICTED,
    EXPIRED,
    KEPT_BY_TWIN,
    NO_ROOM_FOR_CLONE,
    NOT_ALL_FITS,
    PRELOAD_DISABLED,
    QUOTA_EXCEEDED,
    SCHEDULE_NEVER_FIRES,
    TTL_SHORTER_THAN_LOAD,
    UNKNOWN_POLICY,
    Finding,
    finding,
)
from tdcs.api.dataset import Grant
from tdcs.api.durations import to_seconds
from tdcs.api.sharing import PIN, TIMED, Access, Eviction
from tdcs.decide.cache.cache_quotas import allowed
from tdcs.decide.cache.eviction_times import mistake
from tdcs.decide.cache.grants import GrantTier, MountGrant
from tdcs.decide.place.slot_nodes import RESERVE_RATIO, WantPlacement
from tdcs.model import slots
from tdcs.model.humanize import counted, human


def is_evicted(grant: MountGrant, mine: WantPlacement | None) -> bool:
    """Whether a Dataset has left the cache, or is about to."""
    if grant.evicted:
        return True
    if mine is None or grant.tier not in (GrantTier.KEPT, GrantTier.IDLE) or mine.short_of:
        return False
    # A cache that could not hold one slot of it if it were empty is too small: that is no eviction.
    room = grant.largest_cache * (1 - RESERVE_RATIO)
    could = mine.eligible > 0 and 0 < int(mine.totals.sizes.max()) <= room
    return could and mine.subset_bytes > 0 and not mine.wanted_bytes


def granted(
    *,
    grant: MountGrant,
    mine: WantPlacement | None,
    clones: Sequence[WantPlacement],
    access: Access,
    eviction: Eviction,
    unknown: str,
    installed: Sequence[str],
    load_seconds: int | None = None,
    kept_by_twin: bool = False,
) -> Finding:
    """What a Dataset is granted, and why it is no more.

    Args:
        grant: of its mount.
        mine: what its own spec came to; None when it preloads nothing.
        clones: its further copies.
        access: of its spec.
        eviction: of its spec.
        unknown: the eviction policy that is not installed; empty when it is.
        installed: the names of those that are, Pin and Timed next to them.
        load_seconds: how long its last load took; None when that is not known.
        kept_by_twin: whether its own time in the cache is over, and that of another Dataset of its mount is not. That
            one may be another tenant's: nothing is said of it.
    """
    if unknown:
        text = (
            f"no eviction policy {unknown} is installed, so nothing of it is evicted: set spec.eviction.policy to "
            f"one of {', '.join(sorted({*installed, PIN, TIMED}))}, or install it next to the operator"
        )
        return finding(names.GRANTED, False, UNKNOWN_POLICY, text)
    if eviction.schedule is not None and (wrong := mistake(eviction.schedule)):
        text = (
            f"spec.eviction.schedule, {eviction.schedule!r}, never fires ({wrong}), so nothing of it is evicted: write "
            "minute, hour, day of the month, month and day of the week, such as 0 3 * * 1"
        )
        return finding(names.GRANTED, False, SCHEDULE_NEVER_FIRES, text)
    if grant.tier is GrantTier.DUE and eviction.policy == TIMED:
        text = (
            f"{_why_over(eviction)} and has left the cache; it is read from the source, and is loaded again as soon "
            "as a job asks for it"
        )
        return finding(names.GRANTED, False, EXPIRED, text)
    if is_evicted(grant, mine):
        text = (
            "others need its room, and nobody uses it: it has left the cache, is read from the source, and is loaded "
            "again when a job asks for it or when there is room"
        )
        return finding(names.GRANTED, False, EVICTED, text)
    if mine is not None and mine.short_of:
        return finding(names.GRANTED, False, QUOTA_EXCEEDED, allowed(mine))
    refused = [clone for clone in clones if not clone.copies]
    if refused:
        return _without(refused)
    kept_finding = _kept_by_twin(eviction) if kept_by_twin else None
    if mine is None:
        return kept_finding or finding(
            names.GRANTED, True, PRELOAD_DISABLED, "what jobs read is cached while there is room"
        )
    if mine.unplaced_bytes:
        text = f"{human(mine.wanted_bytes)} of {human(mine.wanted_bytes + mine.unplaced_bytes)} found room"
        return finding(names.GRANTED, False, NOT_ALL_FITS, text)
    copies = len(mine.copies) + len(clones)
    if access.on_limit == "Clone" and access.max_copies is not None and copies > access.max_copies:
        return finding(names.GRANTED, True, COPIES_ABOVE_MAXIMUM, _too_many_copies(copies, access.max_copies))
    text = f"{human(mine.wanted_bytes)} on {counted(len(set(mine.nodes)), 'node')}"
    further = f", and {counted(len(clones), 'clone')}" if clones else ""
    if load_seconds is not None and eviction.ttl is not None and to_seconds(eviction.ttl) < load_seconds:
        text += (
            f"{further}; but its last load took {load_seconds} s, and it leaves {eviction.ttl} after its last use: "
            "jobs that come later wait for another load. Make spec.eviction.ttl longer than a load"
        )
        return finding(names.GRANTED, True, TTL_SHORTER_THAN_LOAD, text)
    granted_text = f"{text}{further}" if copies else "nothing is asked for"
    return kept_finding or finding(names.GRANTED, True, "Granted", granted_text)


def _kept_by_twin(eviction: Eviction) -> Finding:
    text = (
        f"{_why_over(eviction)}, but another Dataset of the same source keeps the blocks that both use: it stays in "
        "the cache with that one"
    )
    return finding(names.GRANTED, True, KEPT_BY_TWIN, text)


def _why_over(eviction: Eviction) -> str:
    if eviction.ttl is not None:
        return f"it was not used for {eviction.ttl} (spec.eviction.ttl)"
    return f"its time has come (spec.eviction.schedule, {eviction.schedule})"


def _without(refused: Sequence[WantPlacement]) -> Finding:
    """Why clones were not made, and what to do.

    Args:
        refused: at least one of which no copy was placed.
    """
    first = refused[0]
    clones = f"{counted(len(refused), 'clone')} of {human(first.subset_bytes)} for waiting jobs (spec.access.onLimit)"
    wait = "The jobs wait for a place at the copies that there are"
    if first.want.mode == "Replicate" and first.want.node_count is None:
        text = (
            f"{clones} found no nodes: with mode Replicate and without nodeCount one copy is on every node already. "
            f"{wait}. Set spec.placement.nodeCount to the number of nodes of each copy"
        )
        return finding(names.GRANTED, False, NO_ROOM_FOR_CLONE, text)
    if first.short_of:
        text = (
            f"quota {first.short_of} of the CacheCluster (spec.quotas) keeps out {clones}. {wait}. Raise that quota, "
            "or delete or unpin other Datasets that it counts"
        )
        return finding(names.GRANTED, False, QUOTA_EXCEEDED, text)
    text = (
        f"{clones} found no room: each needs nodes without another copy that can take all of it"
        f"{' and have the labels of spec.placement.nodeSelector' if first.want.node_selector else ''}. {wait}. Add "
        "cache nodes or capacity"
    )
    return finding(names.GRANTED, False, NO_ROOM_FOR_CLONE, text)


def _too_many_copies(copies: int, most: int) -> str:
    return (
        f"there are {copies} copies, and spec.access.maxCopies is {most}: no further one is made, those that jobs read "
        "stay until these jobs end, and a clone that no job reads leaves after a while. To keep them set "
        f"spec.access.maxCopies to {copies}"
    )


def evicted(*, uri: str, why: Finding) -> list[Finding]:
    """The conditions of a Dataset that has left the cache: it can be read all the same."""
    return [
        finding(names.MOUNTED, True, "Mounted", f"{uri} can be read through the cache"),
        finding(names.PLACED, False, why.reason, why.message),
        finding(names.LOADED, False, why.reason, why.message),
        finding(names.READY, True, why.reason, why.message),
    ]


def grant_of(*, mine: Sequence[WantPlacement], why: Finding) -> Grant:
    mask = np.zeros(slots.SLOTS, dtype=bool)
    for placement in mine:
        for copy in placement.copies:
            for held in copy.nodes.values():
                mask |= slots.mask_of(held)
    granted_bytes = sum(placement.wanted_bytes for placement in mine)
    return Grant(
        bytes=granted_bytes,
        # Slots without a byte in them find room anywhere: alone they are no grant.
        slots=int(mask.sum()) if granted_bytes else 0,
        reason="" if why.status == "True" else why.reason,
    )
