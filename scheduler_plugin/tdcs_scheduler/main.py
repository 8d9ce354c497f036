"""`tdcs extender`: the process, in one pod with its kube-scheduler."""

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import click
import uvicorn
import uvloop

from tdcs.api import names
from tdcs.kube.api import KubeApi, Object
from tdcs.kube.client import connect
from tdcs.kube.configuration import ConfigurationError
from tdcs.kube.informer import Informer
from tdcs.kube.objects import Key
from tdcs.kube.resources import DATASETS, PODS
from tdcs_scheduler.app import EXPLANATIONS, Extender
from tdcs_scheduler.demand import Demand, selector, waiting_pod
from tdcs_scheduler.fast_path import FastPath
from tdcs_scheduler.pod_events import PodEvents
from tdcs_scheduler.view import DatasetView

_log: Final = logging.getLogger(__name__)

# kube-scheduler keeps idle connections for 90 s; a server that closes them earlier makes some of its calls fail.
_KEEP_ALIVE_SECONDS: Final = 120

# Waiting pods come and go with every pod that is placed, 70 a second. News of some 50 ms is new enough, for it is
# kube-scheduler that tells which pod's turn it is.
_GATHER_SECONDS: Final = 0.05

# The API server sends a bookmark about once a minute; three missed ones mean that it is gone.
DEFAULT_STALE_AFTER: Final = 180.0


class LogFormat(logging.Formatter):
    """Time, level and message; the explanations of answers are JSON and stay so, for programs that read them."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return record.getMessage() if record.name == EXPLANATIONS else super().format(record)


class _InformerFreshness:
    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def is_synced(self) -> bool:
        return self._informer.synced.is_set()

    def age_seconds(self) -> float:
        return self._informer.last_contact_age()


class _Server(uvicorn.Server):
    """A server that leaves the process' signals alone: uvicorn's own handling ends the process by the signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    *,
    listeners: list[socket.socket],
    monitoring_port: int | None,
    stale_after_seconds: float,
    explain: bool,
    scheduler_name: str,
) -> None:
    """Serve on `listeners` until SIGTERM or SIGINT, with a view kept by the API server of the usual configuration.

    Raises ConfigurationError when there is none.
    """
    api = await connect()
    view = DatasetView()
    # Whoever cannot list pods still scores: nothing waits then, as far as is known.
    demand, pods = waiting_pods(
        api=api, view=view, scheduler_name=scheduler_name, stale_after_seconds=stale_after_seconds
    )

    def on_dataset(key: Key, dataset: Object | None) -> None:
        view.on_change(key, dataset)
        demand.on_dataset(key)

    informer = Informer(api=api, resource=DATASETS, on_change=on_dataset)
    app = Extender(
        view=view,
        freshness=_InformerFreshness(informer),
        stale_after_seconds=stale_after_seconds,
        monitoring_port=monitoring_port,
        explain=explain,
        report=PodEvents(api=api),
        demand=demand,
    )
    config = uvicorn.Config(
        app,
        loop="none",
        http=FastPath,
        ws="none",
        lifespan="off",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
        proxy_headers=False,
        access_log=False,
        log_config=None,
        server_header=False,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, functools.partial(setattr, server, "should_exit", True))
    try:
        await _until_either_ends(server=server, informer=informer, pods=pods, listeners=listeners)
    finally:
        await api.close()


def waiting_pods(
    *,
    api: KubeApi,
    view: DatasetView,
    scheduler_name: str,
    stale_after_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Demand, Informer]:
    """The demand of the pods that wait for this scheduler, and the informer that keeps it."""
    demand = Demand(
        view=view,
        age_seconds=lambda: informer.last_contact_age(),
        stale_after_seconds=stale_after_seconds,
    )
    informer = Informer(
        api=api,
        resource=PODS,
        fields=selector(scheduler_name=scheduler_name),
        keep=waiting_pod,
        on_change=demand.on_pod,
        clock=clock,
        gather=_GATHER_SECONDS,
    )
    return demand, informer


async def _until_either_ends(
    *, server: uvicorn.Server, informer: Informer, pods: Informer, listeners: list[socket.socket]
) -> None:
    following = asyncio.create_task(informer.run(), name="datasets")
    counting = asyncio.create_task(pods.run(), name="pods")
    tidying = asyncio.create_task(_tidy_memory(informer), name="memory")
    serving = asyncio.create_task(server.serve(sockets=listeners), name="server")
    await asyncio.wait({following, counting, serving}, return_when=asyncio.FIRST_COMPLETED)
    # An informer only ends by a fault: an extender that learns nothing more must not go on answering.
    server.should_exit = True
    await serving
    for task in (tidying, counting, following):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _tidy_memory(informer: Informer) -> None:
    """Keep what lives for ever away from the garbage collector: its pauses are the slowest answers."""
    await informer.synced.wait()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@click.command(name="extender")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; kube-scheduler is in the same pod.",
)
@click.option("--port", default=names.EXTENDER_PORT, show_default=True, type=click.IntRange(1, 65535))
@click.option(
    "--monitoring-port",
    default=None,
    type=click.IntRange(1, 65535),
    help="One more port, on all addresses, with /healthz, /livez and /metrics only.",
)
@click.option(
    "--stale-after",
    default=DEFAULT_STALE_AFTER,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds without a word from the API server until /healthz is red.",
)
@click.option(
    "--explain",
    is_flag=True,
    envvar="TDCS_EXTENDER_EXPLAIN",
    help="Log the reason for every answer to a pod with datasets.",
)
@click.option(
    "--scheduler-name",
    default=names.SCHEDULER_NAME,
    show_default=True,
    help="Of the kube-scheduler that asks: what its waiting pods need is left to them.",
)
def command(
    *,
    host: str,
    port: int,
    monitoring_port: int | None,
    stale_after: float,
    explain: bool,
    scheduler_name: str,
) -> None:
    """Run the scheduler extender: ranks nodes by the bytes of a pod's datasets that they hold."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormat())
    logging.basicConfig(level=os.environ.get("TDCS_LOG_LEVEL", "INFO"), handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with contextlib.ExitStack() as open_sockets:
        listeners = [open_sockets.enter_context(_listen(host=host, port=port, option="--port"))]
        if monitoring_port is not None:
            other = _listen(host="", port=monitoring_port, option="--monitoring-port")
            listeners.append(open_sockets.enter_context(other))
        _log.info("serving kube-scheduler on %s:%d", host, port)
        _run(
            serve(
                listeners=listeners,
                monitoring_port=monitoring_port,
                stale_after_seconds=stale_after,
                explain=explain,
                scheduler_name=scheduler_name,
            )
        )


def _listen(*, host: str, port: int, option: str) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise click.ClickException(
            f"the extender cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; choose another "
            f"{option}, and "
            "use the same one where it is asked: urlPrefix of the scheduler's configuration, or the probes"
        ) from error


def _run(serving: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(serving)
        except ConfigurationError as error:
            raise click.ClickException(
                f"the extender finds no Kubernetes API server: {error}; run it in a pod with a service account, "
                "or set KUBECONFIG"
            ) from error
