"""`tdcs csi`: the process of the node plugin. One per node, in a DaemonSet, next to kubelet."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Final

import click
import grpc

from tdcs.api import names
from tdcs.engine.operator_client import OperatorClient
from tdcs.node.csi.csi_health import serve_health
from tdcs.node.csi.csi_metrics import registry_of
from tdcs.node.csi.csi_service import identity_service, node_service, registration_service
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.loader_waits import LoaderWaits
from tdcs.node.csi.node_volumes import NodeVolumes, PluginSettings
from tdcs.node.csi.pod_pressure import PodPressures
from tdcs.node.csi.read_wait_report import ReadWaitReport
from tdcs.node.csi.views.mount_tables import ClusterMountTable
from tdcs.node.csi.views.node_views import NodeViews
from tdcs.node.csi.views.view_report import ViewReport
from tdcs.options import options_of
from tdcs.trust.contexts import client_contexts, server_contexts
from tdcs.trust.metrics_server import serve_metrics

_log: Final = logging.getLogger(__name__)

# Calls under way get this long to end when the plugin is stopped; kubelet repeats what was cut off.
_GRACE_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 5.0

_SOCKET_PATH_BYTES: Final = 107

_CALLS_PER_CLUSTER: Final = 8
"""Calls into the remote-read client at the same time for one cluster; as many may hang before further volumes of the
cluster are refused unasked."""


class RegistrationRefusedError(Exception):
    """kubelet does not take the plugin; the text has its reason."""


class MountTables:
    """What each cache cluster has mounted.

    Args:
        operator: knows it; None: none is named.
    """

    def __init__(self, operator: OperatorClient | None) -> None:
        self._operator: Final = operator
        self._tables: Final[dict[str, ClusterMountTable]] = {}

    def get(self, cluster: str) -> ClusterMountTable:
        if cluster not in self._tables:
            self._tables[cluster] = ClusterMountTable(cluster=cluster, operator=self._operator)
        return self._tables[cluster]


async def run(settings: PluginSettings, *, stop: asyncio.Event) -> None:
    """Serve kubelet until `stop` is set.

    Raises RegistrationRefusedError when kubelet refuses the plugin, OSError when a socket cannot be made.
    """
    csi_socket = settings.kubelet / "plugins" / names.CSI_DRIVER / "csi.sock"
    registration_socket = settings.kubelet / "plugins_registry" / f"{names.CSI_DRIVER}-reg.sock"
    refused: list[str] = []

    def on_status(registered: bool, reason: str) -> None:
        if registered:
            _log.info("kubelet of node %s registered driver %s", settings.node, names.CSI_DRIVER)
            return
        refused.append(reason)
        stop.set()

    tables = MountTables(
        OperatorClient(settings.manifest_address, tls=client_contexts(settings.trust))
        if settings.manifest_address
        else None
    )
    guard = HangGuard(threads_per_key=_CALLS_PER_CLUSTER)
    native = NodeViews(settings=settings, engine=tables.get, guard=guard)
    volumes = NodeVolumes(settings=settings, views=native)
    async with contextlib.AsyncExitStack() as stack:
        if port := settings.health_port:
            await stack.enter_async_context(
                serve_health(port=port, sockets=(csi_socket, registration_socket))
            )
        registry = registry_of(reports=_asked_in_this_loop(native.reports))
        tls = server_contexts(settings.trust)
        stack.enter_context(serve_metrics(registry, port=settings.metrics_port or None, tls=tls))
        # Before the service: what still waits when the plugin is stopped is answered while the views are looked after.
        await stack.enter_async_context(_alongside(native.watch(), task_name="the views", stop=stop))
        node = node_service(volumes=volumes, node=settings.node)
        await stack.enter_async_context(_served(csi_socket, identity_service(), node, grace=_GRACE_SECONDS))
        # kubelet calls the plugin as soon as it sees the registration socket: hence second.
        registration = registration_service(endpoint=str(csi_socket), on_status=on_status)
        await stack.enter_async_context(_served(registration_socket, registration))
        if settings.manifest_address:
            waits = _wait_report(settings, operator=settings.manifest_address)
            work = _alongside(waits.run(), task_name="the reports of how long pods wait", stop=stop)
            await stack.enter_async_context(work)
        _log.info("driver %s serves %s", names.CSI_DRIVER, csi_socket)
        await stop.wait()
        registration_socket.unlink(missing_ok=True)
        volumes.stop()
    if refused:
        raise RegistrationRefusedError(
            f"kubelet of node {settings.node} refused driver {names.CSI_DRIVER}: {refused[0]}; "
            "see whether another plugin on the node uses this name"
        )


def _wait_report(settings: PluginSettings, *, operator: str) -> ReadWaitReport:
    proc = settings.proc
    pressures = PodPressures(proc / "1/root/sys/fs/cgroup") if proc is not None else None
    return ReadWaitReport(
        node=settings.node,
        pods=settings.kubelet / "pods",
        operator=operator,
        reader_root=settings.reader_root,
        pressures=pressures,
        loaders=LoaderWaits(proc, pressures) if proc is not None and pressures is not None else None,
        tls=client_contexts(settings.trust),
    )


@contextlib.asynccontextmanager
async def _alongside(
    work: Coroutine[None, None, None], *, task_name: str, stop: asyncio.Event
) -> AsyncIterator[None]:
    """Run something next to the server. When it breaks, the plugin ends, and kubelet starts it again."""

    def ended(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.error(
                "keeping %s broke down; the plugin ends to be started again",
                task_name,
                exc_info=task.exception(),
            )
            stop.set()

    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _served(path: Path, *services: grpc.GenericRpcHandler, grace: float = 1.0) -> AsyncIterator[None]:
    """Serve at a socket; at the end, calls that are being answered have `grace` seconds."""
    _make_room(path)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(services)
    try:
        server.add_insecure_port(f"unix://{path}")
    except RuntimeError as error:  # all that gRPC raises here; the reason it only prints
        raise OSError(
            f"no socket can be made at {path}: see whether the folder can be written to, and whether the path has more "
            f"than the {_SOCKET_PATH_BYTES} bytes that Linux allows"
        ) from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=grace)


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # left by a process that was killed


def _asked_in_this_loop(reports: Callable[[], list[ViewReport]]) -> Callable[[], Iterable[ViewReport]]:
    """As `reports`, for other threads: the views change in the event loop's alone."""
    loop = asyncio.get_running_loop()

    async def ask() -> list[ViewReport]:
        return reports()

    return lambda: asyncio.run_coroutine_threadsafe(ask(), loop).result(timeout=_REPORT_SECONDS)


async def _run_until_signal(settings: PluginSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop=stop)


@click.command(name="csi")
@options_of(PluginSettings)
def command(settings: PluginSettings) -> None:
    """Run the CSI node plugin: gives pods their datasets as read-only volumes."""
    logging.basicConfig(
        level=os.environ.get("TDCS_LOG_LEVEL", "INFO"),
        format=names.LOG_LINE,
    )
    try:
        asyncio.run(_run_until_signal(settings))
    except (OSError, RegistrationRefusedError) as error:
        raise click.ClickException(
            f"the CSI node plugin of node {settings.node} cannot run: {error}"
        ) from error
