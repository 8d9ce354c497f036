"""The addresses of stores that no rule names, looked up again and again: a name may lead elsewhere at any time.

Lookups run in threads of their own, a few at a time: a tenant's slow name server holds up nothing but its own Datasets.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tdcs.controllers.background_task import BackgroundTask
from tdcs.kube.api import Object
from tdcs.policy.addresses import Network, internal_kind, parse_networks

Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host; raises OSError when it has none. Runs in a thread."""

FRESH_SECONDS: Final = 10.0
"""An answer is asked for again after so long."""

STALE_SECONDS: Final = 60.0
"""An older answer is none: what could not be looked up for so long is not mounted."""

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
    """

    known: bool = False
    address: str = ""
    internal: str = ""
    failure: str = ""


@dataclass(slots=True)
class _Host:
    answer: HostAnswer
    at: float
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
        now = self._clock()
        known = self._hosts.get(host)
        if known is None:
            self._forget_old(now)
            known = self._hosts[host] = _Host(HostAnswer(), float("-inf"))
        if known.work is not None and not known.work.running:
            known.answer, known.at, known.work = known.work.result(), now, None
        if known.work is None and now - known.at >= FRESH_SECONDS:
            known.work = BackgroundTask(
                self._lookup(host, known.answer.address), name=f"look up {host}", on_done=lambda: None
            )
        return known.answer if now - known.at < STALE_SECONDS else HostAnswer()

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
