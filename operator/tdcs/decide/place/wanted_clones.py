"""Which further copies of a dataset there shall be for its jobs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.api.dataset import Copy
from tdcs.api.durations import past, seconds_between
from tdcs.api.sharing import Access

MOST: Final = 64
"""Copies that a Dataset has at most when its spec sets no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A further copy.

    Attributes:
        id: of the copy.
        idle_since: since when no job reads it, nor waits for it; None while one does.
    """

    id: str
    idle_since: str | None = None


def clones(
    *,
    access: Access,
    copies: int,
    existing_copies: Iterable[Copy],
    readers: Mapping[str, int],
    jobs: int,
    now: str,
    idle_seconds: float,
) -> tuple[Clone, ...]:
    """The further copies of a dataset.

    One that is read stays, whatever the spec says by now. One that no job needs goes after a while.

    Args:
        access: how many jobs may read each copy.
        copies: those that spec.placement asks for.
        readers: how many jobs read each copy.
        jobs: how many its copies have to serve at once: those that read it, and those that wait to.
        idle_seconds: how long one stays that no job needs: the next job may come soon.
    """
    limit = access.max_concurrent_jobs
    needed = 0
    if access.on_limit == "Clone" and limit:
        needed = max(min(math.ceil(jobs / limit), access.max_copies or MOST) - copies, 0)
    existing_clones = {copy.id: copy for copy in existing_copies if copy.id.startswith(names.CLONE_COPY)}
    kept_clones = {id_: Clone(id=id_) for id_ in existing_clones if readers.get(id_)}
    for id_ in sorted(existing_clones.keys() - kept_clones.keys(), key=_number):
        if len(kept_clones) < needed:
            kept_clones[id_] = Clone(id=id_)
    while len(kept_clones) < needed:
        number = next(
            free_number
            for free_number in range(1, MOST + 2)
            if f"{names.CLONE_COPY}{free_number}" not in kept_clones
        )
        kept_clones[f"{names.CLONE_COPY}{number}"] = Clone(id=f"{names.CLONE_COPY}{number}")
    for id_, copy in existing_clones.items():
        since = past(copy.idle_since or now, now=now)
        if id_ not in kept_clones and seconds_between(since, now) < idle_seconds:
            kept_clones[id_] = Clone(id=id_, idle_since=since)
    return tuple(kept_clones[id_] for id_ in sorted(kept_clones, key=_number))


def _number(id_: str) -> tuple[int, str]:
    text = id_.removeprefix(names.CLONE_COPY)
    return (int(text) if text.isdigit() else MOST, id_)
