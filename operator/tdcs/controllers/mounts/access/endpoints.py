"""The addresses of stores that no rule names, looked up again and again: a name may lead elsewhere at any time.

Lookups run in threads of their own, a few at a time: a tenant's slow name server holds up nothing but its own Datasets.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from tdcs.controllers.background_task import BackgroundTask
from tdcs.kube.api import Object
from tdcs.policy.addresses import Network, internal_kind, parse_networks, plain_address

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

_LOOKUPS_AT_ONCE: Final = 4
_HOSTS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What is known of a host.

    Attributes:
        known: whether it was looked up lately; if not it is being looked up.
        address: one of its addresses, the same for as long as it has that; all of them are fit.
        internal: what kind of address it has that a source may not have; empty when all are fit.
        failure: why it has no address; empty when it has.
        settled: whether an address that is not fit counts for good: it was seen again and again.
    """

    known: bool = False
    address: str = ""
    internal: str = ""
    failure: str = ""
    settled: bool = False


@dataclass(slots=True)
class _Host:
    answer: HostAnswer
    at: float
    good_at: float = float("-inf")
    bad_since: float = 0.0
    bad_looks: int = 0
    work: "BackgroundTask[HostAnswer] | None" = None


class Endpoints:
    """Looks up hosts in the background and compares their addresses with the cluster's networks.

    Args:
        resolve: gives the addresses of a host.
        networks: those of the cluster now, as texts.
        clock: seconds that only grow.
    """

    def __init__(
        self, *, resolve: Resolve, networks: Callable[[], Iterable[str]], clock: Callable[[], float]
    ) -> None:
        self._resolve: Final = resolve
        self._networks: Final = networks
        self._clock: Final = clock
        self._hosts: Final[dict[str, _Host]] = {}
        self._threads: Final = ThreadPoolExecutor(_LOOKUPS_AT_ONCE, thread_name_prefix="lookup")

    def look(self, host: str) -> HostAnswer:
        """What is known of a host now; what is not, or not lately, is looked up meanwhile."""
        if plain_address(host) is not None:
            networks = _parsed(list(self._networks()))
            return HostAnswer(
                known=True, address=host, internal=internal_kind(host, internal=networks), settled=True
            )
        now = self._clock()
        known = self._hosts.get(host)
        if known is None:
            self._forget_old(now)
            known = self._hosts[host] = _Host(HostAnswer(), float("-inf"))
        if known.work is not None and not known.work.running:
            answer, known.work = known.work.result(), None
            _take(known, answer, now)
        if known.work is None and now - known.at >= FRESH_SECONDS:
            known.work = BackgroundTask(
                self._lookup(host, known.answer.address), name=f"look up {host}", on_done=lambda: None
            )
        return known.answer if now - known.at < STALE_SECONDS else HostAnswer()

    def looking(self, host: str) -> bool:
        """Whether a host is being looked up."""
        known = self._hosts.get(host)
        return known is not None and known.work is not None and known.work.running

    async def close(self) -> None:
        """Stop what is under way."""
        works = [host.work for host in self._hosts.values() if host.work is not None]
        for work in works:
            await work.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _lookup(self, host: str, before: str) -> HostAnswer:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, host)
        except (OSError, UnicodeError) as error:
            return HostAnswer(known=True, failure=getattr(error, "strerror", None) or str(error))
        networks = await asyncio.to_thread(_parsed, list(self._networks()))
        kinds = (internal_kind(address, internal=networks) for address in found)
        if internal := next(filter(None, kinds), ""):
            return HostAnswer(known=True, internal=internal)
        if not found:
            return HostAnswer(known=True, failure="no address")
        return HostAnswer(known=True, address=before if before in found else found[0])

    def _forget_old(self, now: float) -> None:
        """Bounded, whatever names tenants make up."""
        if len(self._hosts) >= _HOSTS:
            for host in sorted(self._hosts, key=lambda name: self._hosts[name].at)[: _HOSTS // 2]:
                if self._hosts[host].work is None:
                    del self._hosts[host]


def _take(host: _Host, answer: HostAnswer, now: float) -> None:
    """Take in an answer: one that failed leaves a good one standing for a while."""
    host.at = now
    if answer.address:
        host.good_at, host.bad_looks = now, 0
    elif answer.internal:
        host.bad_since = host.bad_since if host.bad_looks else now
        host.bad_looks += 1
        settled = host.bad_looks >= REFUSED_LOOKS and now - host.bad_since >= REFUSED_SECONDS
        answer = replace(answer, settled=settled)
    elif host.answer.address and now - host.good_at < STALE_SECONDS:
        return
    host.answer = answer


def cluster_networks(*, nodes: Mapping[tuple[str, str], Object], more: Iterable[str]) -> list[str]:
    """The networks of pods and the addresses of nodes, as the nodes say, and those that the administrator names."""
    found = list(more)
    for node in nodes.values():
        spec, status = node.get("spec") or {}, node.get("status") or {}
        found += [str(each) for each in spec.get("podCIDRs") or [spec.get("podCIDR")] if each]
        found += [
            str(each.get("address"))
            for each in status.get("addresses") or ()
            if each.get("type") in {"InternalIP", "ExternalIP"}
        ]
    return found


def _parsed(texts: Iterable[str]) -> tuple[Network, ...]:
    found: list[Network] = []
    for text in texts:
        with contextlib.suppress(ValueError):
            found += parse_networks([text])
    return tuple(found)
