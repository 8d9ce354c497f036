"""The addresses of stores that no rule names, looked up again and again: a name may lead elsewhere at any time.

Each name is followed for as long as a Dataset has it: at rest that is a lookup every few seconds and nothing else, for
a Dataset is looked at only when the answer has changed. Lookups run in threads, and a name server that is slow to
answer holds up its own names only.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from tdcs.control.context import WorkKey
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.decide.forbidden_addresses import Network, internal_kind, parse_networks, plain_address
from tdcs.decide.may_read import HostAnswer
from tdcs.listing.namespace_share import NamespaceShare

_log: Final = logging.getLogger(__name__)

Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host; raises OSError when it has none. Runs in a thread."""

FRESH_SECONDS: Final = 10.0
"""An answer is asked for again after so long."""

STALE_SECONDS: Final = 60.0
"""An older answer is none: what could not be looked up for so long is not mounted."""

REFUSED_LOOKS: Final = 3
REFUSED_SECONDS: Final = 60.0
"""A name that had fit addresses is given up after so many looks, over at least so long, that say otherwise:
one false answer of a name server is no reason to delete what is cached."""

LOOKUP_SECONDS: Final = 5.0
"""A lookup that takes longer counts as failed until it ends, and the next ones of this name are in the slow lanes."""

LANES: Final = 16
SLOW_LANES: Final = 4
"""So many lookups at a time: of names that were answered in time, or are new, and of those that were not."""

LANES_OF_ONE_NAMESPACE: Final = 4
SLOW_LANES_OF_ONE_NAMESPACE: Final = 1
"""So many of them are of names that Datasets of one namespace brought: these hold up each other only."""

QUICK_ANSWERS: Final = 3
"""A name that was slow is quick again after so many quick answers in a row."""

_THREADS: Final = 64
"""With those of lookups that have left their lane and not ended yet."""


@dataclass(slots=True)
class _Host:
    """A name and who has it.

    Attributes:
        slow: how many quick answers it needs to be among the quick ones; 0: it is.
        queued: whether its lookup waits for a lane.
    """

    answer: HostAnswer
    users: set[WorkKey] = field(default_factory=set)
    slow: int = 0
    queued: bool = False
    good_at: float = float("-inf")
    bad_since: float = 0.0
    bad_looks: int = 0
    work: asyncio.Task[None] | None = None


class Endpoints:
    """Follows hosts, and compares their addresses with the cluster's networks. All in one event loop.

    Args:
        resolve: gives the addresses of a host.
        networks: those of the cluster.
        on_change: called with each user of a host of which something else is known than before.
    """

    def __init__(
        self,
        *,
        resolve: Resolve,
        networks: ClusterNetworks,
        pods: Container[str],
        clock: Callable[[], float],
        on_change: Callable[[WorkKey], None],
    ) -> None:
        self._resolve: Final = resolve
        self._networks: Final = networks
        self._pods: Final = pods
        self._clock: Final = clock
        self._on_change: Final = on_change
        self._hosts: Final[dict[str, _Host]] = {}
        self._names: Final[dict[WorkKey, str]] = {}
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="lookup")
        self._quick: Final = asyncio.Semaphore(LANES)
        self._slow: Final = asyncio.Semaphore(SLOW_LANES)
        self._lookups: Final[Counter[str]] = Counter()
        self._quick_shares: Final = NamespaceShare(LANES_OF_ONE_NAMESPACE)
        self._slow_shares: Final = NamespaceShare(SLOW_LANES_OF_ONE_NAMESPACE)
        self._parsed: tuple[tuple[str, ...], tuple[Network, ...]] = ((), ())

    def look(self, name: str, *, user: WorkKey) -> HostAnswer:
        """What is known of a host now, which is followed for this user from now on; of an address that is all."""
        if self._names.get(user) != name:
            self.drop(user)
            self._names[user] = name
            host = self._hosts.get(name)
            if host is None:
                plain = plain_address(name) is not None
                host = _Host(replace(self._judged([name]), settled=True) if plain else HostAnswer())
                self._hosts[name] = host
            namespaces = {key.namespace for key in host.users}
            host.users.add(user)
            if host.work is None or (host.queued and user.namespace not in namespaces):
                # Where it waits behind other names of a namespace, this user's own may have a lane for it.
                if host.work is not None:
                    host.work.cancel()
                host.work = asyncio.create_task(self._follow(name, host), name=f"look up {name}")
        return self._hosts[name].answer

    def drop(self, user: WorkKey) -> None:
        """A user has no host any more, or is gone."""
        name = self._names.pop(user, None)
        if name is None:
            return
        host = self._hosts[name]
        host.users.discard(user)
        if not host.users:
            del self._hosts[name]
            if host.work is not None:
                host.work.cancel()

    async def close(self) -> None:
        works = [host.work for host in self._hosts.values() if host.work is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, name: str, host: _Host) -> None:
        """Look a host up, again and again, until cancelled."""
        while True:
            lookup = asyncio.create_task(self._lookup(name, host))
            try:
                while not (await asyncio.wait({lookup}, timeout=LOOKUP_SECONDS))[0]:
                    if not host.answer.failure:  # which says more
                        text = f"no name server has answered for {LOOKUP_SECONDS:g} s"
                        self._take(host, HostAnswer(known=True, failure=text))
                self._take(host, lookup.result())
            except Exception as error:
                _log.exception("%s could not be looked up by a defect of the operator", name)
                self._take(host, HostAnswer(known=True, failure=str(error)))
            finally:
                lookup.cancel()
            await asyncio.sleep(FRESH_SECONDS)

    async def _lookup(self, name: str, host: _Host) -> HostAnswer:
        if plain_address(name) is not None:
            return replace(self._judged([name]), settled=True)
        clock = asyncio.get_running_loop().time
        slow = host.slow > 0
        async with self._lane(host, slow=slow):
            began = clock()
            work = asyncio.wrap_future(self._threads.submit(self._resolve, name))
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait({work}, timeout=None if slow else LOOKUP_SECONDS)
        try:
            addresses = await work
        except (OSError, ValueError) as error:
            return HostAnswer(known=True, failure=getattr(error, "strerror", None) or str(error))
        finally:
            host.slow = QUICK_ANSWERS if clock() - began > LOOKUP_SECONDS else max(host.slow - 1, 0)
        return self._judged(addresses, before=host.answer.address)

    @contextlib.asynccontextmanager
    async def _lane(self, host: _Host, *, slow: bool) -> AsyncIterator[None]:
        """A lane for a lookup, for the namespace among its users' that has the fewest in the lanes or before them."""
        lanes, shares = (self._slow, self._slow_shares) if slow else (self._quick, self._quick_shares)
        namespace = min(
            {key.namespace for key in host.users}, key=lambda name: (self._lookups[name], name), default=""
        )
        self._lookups[namespace] += 1
        host.queued = True
        try:
            # In this order: who waits for others of its namespace takes no lane from anybody.
            async with shares.of(namespace), lanes:
                host.queued = False
                yield
        finally:
            self._lookups[namespace] -= 1
            if not self._lookups[namespace]:
                del self._lookups[namespace]

    def _judged(self, addresses: Sequence[str], *, before: str = "") -> HostAnswer:
        texts = self._networks.all()
        if texts != self._parsed[0]:
            self._parsed = (texts, _networks_of(texts))
        kinds = (internal_kind(address, internal=self._parsed[1], pods=self._pods) for address in addresses)
        if internal := next(filter(None, kinds), ""):
            return HostAnswer(known=True, internal=internal)
        if not addresses:
            return HostAnswer(known=True, failure="no address")
        return HostAnswer(known=True, address=before if before in addresses else addresses[0])

    def _take(self, host: _Host, answer: HostAnswer) -> None:
        before = host.answer
        _take(host, answer, self._clock())
        if host.answer != before:
            for user in list(host.users):
                self._on_change(user)


def _take(host: _Host, answer: HostAnswer, now: float) -> None:
    """Take in an answer: one that failed leaves a good one standing for a while."""
    if answer.address:
        host.good_at, host.bad_looks = now, 0
    elif answer.internal:
        host.bad_since = host.bad_since if host.bad_looks else now
        host.bad_looks += 1
        settled = host.bad_looks >= REFUSED_LOOKS and now - host.bad_since >= REFUSED_SECONDS
        answer = replace(answer, settled=answer.settled or settled)
    elif host.answer.address and now - host.good_at < STALE_SECONDS:
        return
    host.answer = answer


def _networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    networks: list[Network] = []
    for text in texts:
        with contextlib.suppress(ValueError):
            networks += parse_networks([text])
    return tuple(networks)
