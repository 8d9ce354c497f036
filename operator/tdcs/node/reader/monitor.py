"""Next to the processes that serve: health and metrics, and the tables of who holds what, asked from the operator."""

import logging
import random
import socket
import threading
import time
import urllib.parse
from contextlib import ExitStack, suppress
from typing import Final

import msgspec

from tdcs.engine.holder_table import HOLDERS_PATH, Holder, HolderTable
from tdcs.engine.operator_client import OperatorClient, RequestRefusedError
from tdcs.engine.read_reports import READ_FAILURES_PATH
from tdcs.engine.reader_files import DRAFT, Registration
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.exposition import registry_of
from tdcs.node.reader.registration import ReaderFolder, write_atomically
from tdcs.node.reader.settings import ReaderSettings
from tdcs.node.reader.supervisor import HANG_SECONDS
from tdcs.trust.contexts import client_contexts, server_contexts
from tdcs.trust.metrics_server import serve_health, serve_metrics

_log: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 20.0
"""How long the operator may keep a question while nothing changes."""

_LOOK_SECONDS: Final = 0.5
_SLACK_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_REPORT_SECONDS: Final = 5.0
_REPORT_PAUSE_SECONDS: Final = 10.0
_LARGEST_TABLE: Final = 64 << 20
_NOT_ADMITTED: Final = 403
"""A caller's certificate has ended, say: the next one is admitted."""


def run(settings: ReaderSettings, counters: Counters) -> None:
    Monitor(settings, counters).run()


class Monitor:
    def __init__(self, settings: ReaderSettings, counters: Counters) -> None:
        self._settings: Final = settings
        self._counters: Final = counters
        self._operator: Final = OperatorClient(settings.operator, tls=client_contexts(settings.trust))
        self._folder: Final = ReaderFolder(settings.folder)
        self._labels: Final[dict[int, tuple[str, str, str]]] = {}
        self._polls: Final[dict[str, threading.Thread]] = {}
        self._named: Final[dict[str, int]] = {}
        self._report_at = 0.0

    def run(self) -> None:
        settings = self._settings
        with ExitStack() as serving:
            if settings.health_port:
                trouble = "no process serves the file system"
                serving.enter_context(
                    serve_health(self._is_served, port=settings.health_port, trouble=trouble)
                )
            if settings.metrics_port:
                registry = registry_of(self._counters, versions=self._labels)
                tls = server_contexts(settings.trust)
                serving.enter_context(serve_metrics(registry, port=settings.metrics_port, tls=tls))
            while True:
                self._look()
                self._report_failures()
                time.sleep(_LOOK_SECONDS)

    def _look(self) -> None:
        """Follow the registrations; what is kept of versions that are gone is removed."""
        present = self._folder.registered.names()
        for name in present:
            if name in self._named:
                continue
            registration = self._folder.registered.read(name)
            if registration is None:
                continue
            number = self._named[name] = registration.number
            self._labels[number] = (registration.cluster, registration.path, name.rpartition(".")[2])
            if self._settings.operator and not (name in self._polls and self._polls[name].is_alive()):
                thread = threading.Thread(target=self._poll, args=(name, registration), daemon=True)
                self._polls[name] = thread
                thread.start()
        for name in set(self._named) - set(present):
            self._labels.pop(self._named.pop(name), None)
            (self._folder.holders / name).unlink(missing_ok=True)

    def _report_failures(self) -> None:
        """Have the operator know what could not be read; while it is away, the last failure of each version is kept."""
        now = time.monotonic()
        if not self._settings.operator or now < self._report_at:
            return
        for file in list(self._folder.failures.iterdir()):
            if file.suffix == DRAFT:
                continue  # being written
            try:
                content = file.read_bytes()
                self._operator.post(READ_FAILURES_PATH, content, seconds=_REPORT_SECONDS)
                file.unlink(missing_ok=True)
            except OSError as error:
                if isinstance(error, RequestRefusedError) and error.status != _NOT_ADMITTED:
                    _log.warning("the operator does not take the report %s: %s", file.name, error)
                    file.unlink(missing_ok=True)
                    continue
                self._report_at = now + _REPORT_PAUSE_SECONDS
                _log.info("the operator cannot be reached, and hears later what could not be read: %s", error)
                return

    def _poll(self, name: str, registration: Registration) -> None:
        revision = -1
        while name in self._named:
            try:
                table = self._ask(registration, revision=revision)
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                _log.info("the operator does not say who holds %s: %s; the last answer counts", name, error)
                time.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311
                continue
            if not table.holders:
                # An operator that has only started, or stands by, knows no agent yet: what is known stays.
                time.sleep(_PAUSE_SECONDS)
            elif table.revision != revision:
                resolved = msgspec.structs.replace(table, holders=tuple(_resolved(table)))
                try:
                    write_atomically(self._folder.holders / name, msgspec.msgpack.encode(resolved))
                except OSError as error:  # a full disk, say
                    _log.warning("who holds %s cannot be kept: %s; the last answer counts", name, error)
                    time.sleep(_PAUSE_SECONDS)
                    continue
                revision = table.revision

    def _ask(self, registration: Registration, *, revision: int) -> HolderTable:
        query = urllib.parse.urlencode(
            {
                "mount": registration.path,
                "revision": revision,
                "wait": POLL_SECONDS,
                "node": self._settings.node,
            }
        )
        answer = self._operator.get(
            f"{HOLDERS_PATH}{registration.cluster}?{query}",
            seconds=POLL_SECONDS + _SLACK_SECONDS,
            largest=_LARGEST_TABLE,
        )
        return msgspec.msgpack.decode(answer, type=HolderTable)

    def _is_served(self) -> bool:
        return 0 < self._counters.since_beat() < 2 * HANG_SECONDS


def _resolved(table: HolderTable) -> list[Holder]:
    """The holders with numeric addresses, so that no reader waits for DNS; those without one are left out."""
    holders: list[Holder] = []
    addresses: dict[str, str] = {}
    for holder in table.holders:
        host, _, port = holder.address.rpartition(":")
        if host not in addresses:
            with suppress(OSError):
                addresses[host] = _numeric(host)
        if host in addresses:
            holders.append(msgspec.structs.replace(holder, address=f"{addresses[host]}:{port}"))
    return holders


def _numeric(host: str) -> str:
    address = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0][4][0]
    return f"[{address}]" if ":" in str(address) else str(address)
