"""`tdcs csi`: the process of the node plugin. One per node, in a DaemonSet, next to kubelet."""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import Final

import click
import grpc

from tdcs.api import names
from tdcs.csi.health import serve_health
from tdcs.csi.node import NodeVolumes, Settings
from tdcs.csi.service import identity_service, node_service, registration_service

_log: Final = logging.getLogger(__name__)

# Calls under way get this long to end when the plugin is stopped; kubelet repeats what was cut off.
_GRACE_SECONDS: Final = 5.0

_SOCKET_PATH_BYTES: Final = 107


class RegistrationRefusedError(Exception):
    """kubelet does not take the plugin; the text has its reason."""


async def run(*, settings: Settings, health_port: int | None, stop: asyncio.Event) -> None:
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

    volumes = NodeVolumes(settings=settings)
    plugin = await _serve(csi_socket, identity_service(), node_service(volumes=volumes, node=settings.node))
    # kubelet calls the plugin as soon as it sees the registration socket: hence second.
    registration = await _serve(
        registration_socket, registration_service(endpoint=str(csi_socket), on_status=on_status)
    )
    async with contextlib.AsyncExitStack() as stack:
        if health_port is not None:
            await stack.enter_async_context(
                serve_health(port=health_port, sockets=(csi_socket, registration_socket))
            )
        _log.info("driver %s serves %s", names.CSI_DRIVER, csi_socket)
        await stop.wait()
    registration_socket.unlink(missing_ok=True)
    volumes.stop()
    await asyncio.gather(registration.stop(grace=1.0), plugin.stop(grace=_GRACE_SECONDS))
    if refused:
        raise RegistrationRefusedError(
            f"kubelet of node {settings.node} refused driver {names.CSI_DRIVER}: {refused[0]}; "
            "see whether another plugin on the node uses this name"
        )


async def _serve(path: Path, *services: grpc.GenericRpcHandler) -> grpc.aio.Server:
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
    return server


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # left by a process that was killed


async def _run_until_signal(*, settings: Settings, health_port: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings=settings, health_port=health_port, stop=stop)


@click.command(name="csi")
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of this Kubernetes node.")
@click.option(
    "--fuse-root",
    envvar="TDCS_FUSE_ROOT",
    default=names.FUSE_ROOT,
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder with one FUSE mount for each cache cluster.",
)
@click.option(
    "--kubelet",
    envvar="TDCS_KUBELET_ROOT",
    default="/var/lib/kubelet",
    show_default=True,
    type=click.Path(path_type=Path),
    help="kubelet's folder.",
)
@click.option(
    "--wait",
    "wait_seconds",
    default=Settings.wait_seconds,
    show_default=True,
    type=click.FloatRange(min=0, max=100),
    help="Seconds that a pod's volume waits for its data's folder before kubelet is told to try again.",
)
@click.option(
    "--health-port",
    default=None,
    type=click.IntRange(1, 65535),
    help="Port of GET /healthz; none by default.",
)
def command(
    *, node: str, fuse_root: Path, kubelet: Path, wait_seconds: float, health_port: int | None
) -> None:
    """Run the CSI node plugin: gives pods their datasets as read-only volumes."""
    logging.basicConfig(
        level=os.environ.get("TDCS_LOG_LEVEL", "INFO"), format="%(asctime)s %(levelname)s %(message)s"
    )
    settings = Settings(node=node, fuse_root=fuse_root, kubelet=kubelet, wait_seconds=wait_seconds)
    try:
        asyncio.run(_run_until_signal(settings=settings, health_port=health_port))
    except (OSError, RegistrationRefusedError) as error:
        raise click.ClickException(f"the CSI node plugin of node {node} cannot run: {error}") from error
