"""Which source is listed next: a few at a time for all mounts of the operator, and of each namespace only a part."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from tdcs.decide.dataset_conditions import HeldUpBy
from tdcs.listing.result import Listed

AT_ONCE: Final = 2
"""So many mounts are listed at a time: a listing keeps a core busy, and has some 200 MB."""

STUCK_AT_ONCE: Final = 8
"""So many listings may be open, those included that have taken so long that they count as stuck."""


@dataclass(eq=False, slots=True)
class ListingTurn:
    """That of one mount.

    Attributes:
        namespaces: of the Datasets that read it.
        since: when it began to wait.
        place: the namespace for which it has a place, once it has; only `ListingGate` sets this and what follows.
        timer: until its listing counts as stuck.
    """

    namespaces: frozenset[str]
    since: float
    place: "asyncio.Future[str] | None" = field(default=None, init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)

    @property
    def waits(self) -> bool:
        return self.place is None or not self.place.done()


class ListingGate:
    """Lets a few listings go on at a time. One that hangs, because its source or its cache does not answer, makes place
    for another after a while: it has taken in next to nothing.

    A namespace gets a further place while more are free than it has: half of them where no other has any. Of those that
    wait the next one is of the namespace with the fewest, and namespaces with as many take turns. A mount that Datasets
    of several namespaces read goes by any of them.
    """

    def __init__(self, *, stuck_seconds: float) -> None:
        self._stuck_seconds: Final = stuck_seconds
        self._waiting: Final[dict[str, dict[ListingTurn, None]]] = {}
        self._open: Final = Counter[str]()
        self._quick = 0

    async def run(self, work: Callable[[], Awaitable[Listed]], *, turn: ListingTurn) -> Listed:
        place = turn.place = asyncio.get_running_loop().create_future()
        self._add(turn, turn.namespaces)
        try:
            await place
            return await work()
        finally:
            if place.done() and not place.cancelled():
                self._end(turn, namespace=place.result())
            else:
                self._remove(turn)

    def join(self, turn: ListingTurn, namespaces: frozenset[str]) -> None:
        """Datasets of these namespaces read the mount of a turn, too."""
        more = namespaces - turn.namespaces
        if more and turn.waits:
            turn.namespaces |= more
            if turn.place is not None:
                self._add(turn, more)

    def held_up_by(self, turn: ListingTurn) -> HeldUpBy:
        free = self._free
        return (
            "namespace"
            if free and min(self._open[namespace] for namespace in turn.namespaces) >= free
            else "all"
        )

    @property
    def _free(self) -> int:
        return STUCK_AT_ONCE - self._open.total()

    def _add(self, turn: ListingTurn, namespaces: frozenset[str]) -> None:
        for namespace in namespaces:
            self._waiting.setdefault(namespace, {})[turn] = None
        self._begin()

    def _remove(self, turn: ListingTurn) -> None:
        for namespace in turn.namespaces:
            del self._waiting[namespace][turn]
            if not self._waiting[namespace]:
                del self._waiting[namespace]

    def _begin(self) -> None:
        """Give places to those that have their turn."""
        while self._quick < AT_ONCE and (candidate := self._next()) is not None:
            turn, place, namespace = candidate
            self._remove(turn)
            if namespace in self._waiting:  # behind the others with as many
                self._waiting[namespace] = self._waiting.pop(namespace)
            self._open[namespace] += 1
            self._quick += 1
            turn.timer = asyncio.get_running_loop().call_later(self._stuck_seconds, self._let_go, turn)
            place.set_result(namespace)

    def _next(self) -> "tuple[ListingTurn, asyncio.Future[str], str] | None":
        """The turn that is next, and the namespace that it counts for; None when none may begin."""
        free = self._free
        for namespace in sorted(self._waiting, key=self._open.__getitem__):
            if self._open[namespace] >= free:
                break
            for turn in self._waiting[namespace]:
                # One that was cancelled is still there for a moment.
                if turn.place is not None and not turn.place.done():
                    return turn, turn.place, namespace
        return None

    def _let_go(self, turn: ListingTurn) -> None:
        """A listing counts as stuck."""
        turn.timer = None
        self._quick -= 1
        self._begin()

    def _end(self, turn: ListingTurn, *, namespace: str) -> None:
        self._open[namespace] -= 1
        if not self._open[namespace]:
            del self._open[namespace]
        if turn.timer is not None:
            turn.timer.cancel()
            self._quick -= 1
        self._begin()
