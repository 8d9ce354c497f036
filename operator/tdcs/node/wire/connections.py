"""Who may have a connection to a block service when all places are taken. Decisions only. Pure, and not thread-safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

C = TypeVar("C", bound=Hashable)


@dataclass
class _Caller:
    """Of one connection: where it comes from, and since when it asks for nothing; None while it is answered."""

    host: str
    idle_since: float | None


class ConnectionPlace(NamedTuple, Generic[C]):
    """Whether a new connection has a place, and the connection that has to give its own up for that."""

    admitted: bool
    ended: C | None = None


class Connections(Generic[C]):
    """The places of a service.

    When none is free, a new connection takes the place of the one that has asked for nothing for the longest time. When
    all of them are being answered, it takes one of the host that has most places, if its own host has at least two
    fewer: so a host with many connections leaves no other one without any.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._callers: Final[dict[C, _Caller]] = {}

    def __len__(self) -> int:
        return len(self._callers)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._callers))

    def admit(self, connection: C, *, host: str, now: float) -> ConnectionPlace[C]:
        """Give a new connection a place, if it may have one."""
        ended = self._to_end(host) if len(self._callers) >= self._most else None
        if len(self._callers) >= self._most and ended is None:
            return ConnectionPlace(admitted=False)
        if ended is not None:
            del self._callers[ended]
        self._callers[connection] = _Caller(host, now)
        return ConnectionPlace(admitted=True, ended=ended)

    def answering(self, connection: C) -> None:
        if (caller := self._callers.get(connection)) is not None:
            caller.idle_since = None

    def idle(self, connection: C, *, now: float) -> None:
        if (caller := self._callers.get(connection)) is not None:
            caller.idle_since = now

    def remove(self, connection: C) -> None:
        """It has ended; unknown ones are fine."""
        self._callers.pop(connection, None)

    def _to_end(self, host: str) -> C | None:
        idle = [
            (caller.idle_since, number, connection)
            for number, (connection, caller) in enumerate(self._callers.items())
            if caller.idle_since is not None
        ]
        if idle:
            return min(idle)[2]
        counts = Counter(caller.host for caller in self._callers.values())
        largest, count = counts.most_common(1)[0]
        if count < counts[host] + 2:
            return None
        # The youngest one: what the others have got so far is worth more.
        return next(
            connection for connection, caller in reversed(self._callers.items()) if caller.host == largest
        )
