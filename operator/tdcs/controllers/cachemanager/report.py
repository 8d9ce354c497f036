"""What the cache manager says of a Dataset, in words that say what to do. Pure."""

from collections.abc import Sequence

import numpy as np

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import Grant
from tdcs.api.durations import to_seconds
from tdcs.api.sharing import TIMED, Eviction
from tdcs.controllers.humanize import counted, human
from tdcs.planning.grants import MountGrant, Tier
from tdcs.planning.placement import RESERVE_RATIO, WantPlacement
from tdcs.planning.schedule import mistake
from tdcs.planning.standing import EXPIRED
from tdcs.policy import slots

EVICTED = "Evicted"
"""Reason of a Dataset without a grant because others need its room."""


def is_evicted(grant: MountGrant, mine: WantPlacement | None) -> bool:
    """Whether a Dataset has left the cache, or is about to."""
    if grant.evicted:
        return True
    if mine is None or grant.tier not in (Tier.KEPT, Tier.IDLE) or mine.short_of:
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
    eviction: Eviction,
    unknown: str,
    installed: Sequence[str],
    load_seconds: int | None = None,
) -> Finding:
    """What a Dataset is granted, and why it is no more.

    Args:
        grant: of its mount.
        mine: what its own spec came to; None when it preloads nothing.
        clones: its further copies.
        eviction: of its spec.
        unknown: the eviction policy that is not installed; empty when it is.
        installed: the names of those that are.
        load_seconds: how long its last load took; None when that is not known.
    """
    if unknown:
        text = (
            f"no eviction policy {unknown} is installed, so nothing of it is evicted: set spec.eviction.policy to Pin, "
            f"Timed or one of {', '.join(sorted(installed))}, or install it beside the operator"
        )
        return finding(names.GRANTED, False, "UnknownPolicy", text)
    if eviction.schedule is not None and (wrong := mistake(eviction.schedule)):
        text = (
            f"spec.eviction.schedule, {eviction.schedule!r}, never fires ({wrong}), so nothing of it is evicted: write "
            "minute, hour, day of the month, month and day of the week, such as 0 3 * * 1"
        )
        return finding(names.GRANTED, False, "ScheduleNeverFires", text)
    if grant.tier is Tier.DUE and eviction.policy == TIMED:
        why = (
            f"it was not used for {eviction.ttl} (spec.eviction.ttl)"
            if eviction.ttl is not None
            else f"its time has come (spec.eviction.schedule, {eviction.schedule})"
        )
        text = (
            f"{why} and has left the cache; it is read from the source, and is loaded again as soon as a job asks for "
            "it"
        )
        return finding(names.GRANTED, False, EXPIRED, text)
    if is_evicted(grant, mine):
        text = (
            "others need its room, and nobody uses it: it has left the cache, is read from the source, and is loaded "
            "again when a job asks for it or when there is room"
        )
        return finding(names.GRANTED, False, EVICTED, text)
    if mine is not None and mine.short_of:
        text = (
            f"quota {mine.short_of} of the CacheCluster (spec.quotas) allows {human(mine.wanted_bytes)} of "
            f"{human(mine.wanted_bytes + mine.unplaced_bytes)}; the rest is read from the source"
        )
        return finding(names.GRANTED, False, "QuotaExceeded", text)
    refused = [one for one in clones if not one.copies]
    if refused:
        text = (
            f"{counted(len(refused), 'clone')} for waiting jobs (spec.access.onLimit) found no room: each needs nodes "
            f"without another copy that can take {human(refused[0].subset_bytes)}. The jobs wait for a place at the "
            "copies that there are. Add cache nodes or capacity"
        )
        return finding(names.GRANTED, False, "NoRoomForClone", text)
    if mine is None:
        return finding(names.GRANTED, True, "PreloadDisabled", "what jobs read is cached while there is room")
    if mine.unplaced_bytes:
        text = f"{human(mine.wanted_bytes)} of {human(mine.wanted_bytes + mine.unplaced_bytes)} found room"
        return finding(names.GRANTED, False, "NotAllFits", text)
    copies = len(mine.copies) + len(clones)
    text = f"{human(mine.wanted_bytes)} on {counted(len(set(mine.nodes)), 'node')}"
    further = f", and {counted(len(clones), 'clone')}" if clones else ""
    if load_seconds is not None and eviction.ttl is not None and to_seconds(eviction.ttl) < load_seconds:
        text += (
            f"{further}; but its last load took {load_seconds} s, and it leaves {eviction.ttl} after its last use: "
            "jobs that come later wait for another load. Make spec.eviction.ttl longer than a load"
        )
        return finding(names.GRANTED, True, "TtlShorterThanLoad", text)
    return finding(names.GRANTED, True, "Granted", f"{text}{further}" if copies else "nothing is asked for")


def evicted(*, uri: str, why: Finding) -> list[Finding]:
    """The conditions of a Dataset that has left the cache: it can be read all the same."""
    return [
        finding(names.MOUNTED, True, "Mounted", f"{uri} can be read through the cache"),
        finding(names.PLACED, False, why.reason, why.message),
        finding(names.LOADED, False, why.reason, why.message),
        finding(names.READY, True, why.reason, why.message),
    ]


def grant_of(*, mine: Sequence[WantPlacement], why: Finding) -> Grant:
    """What a Dataset is granted, for its status."""
    mask = np.zeros(slots.SLOTS, dtype=bool)
    for one in mine:
        for copy in one.copies:
            for held in copy.nodes.values():
                mask |= slots.mask_of(held)
    return Grant(
        bytes=sum(one.wanted_bytes for one in mine),
        slots=int(mask.sum()),
        reason="" if why.status == "True" else why.reason,
    )
