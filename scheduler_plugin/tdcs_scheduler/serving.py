"""The extender's servers and what they live on, from the first list of the Datasets to the signal to end."""

import asyncio
import contextlib
import datetime
import gc
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tdcs.kube.api import KubeApi
from tdcs.kube.client import connect
from tdcs.kube.events import EventRecorder
from tdcs.kube.informer import Informer
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import DATASETS, PODS
from tdcs.trust.metrics_server import serve_metrics
from tdcs_scheduler.app import MAX_BODY_BYTES, Extender
from tdcs_scheduler.claim_list import ClaimList
from tdcs_scheduler.demand import Demand, selector, waiting_pod
from tdcs_scheduler.http_server import HttpServer
from tdcs_scheduler.node_places import TopologyView, node_informer
from tdcs_scheduler.protocol import PrioritizeRequest
from tdcs_scheduler.view import DatasetView
from tdcs_scheduler.webhook import MAX_REVIEW_BYTES, Webhook
from tdcs_scheduler.webhook_certificate import CertificateFiles


class AnnotationEvents:
    """Writes an event on a pod with an annotation that cannot be read, or that names what does not exist.

    Its owner sees events, and not the extender's log. In the background: kube-scheduler waits for none of them.
    """

    def __init__(self, *, api: KubeApi) -> None:
        self._recorder: Final = EventRecorder(api=api, component="tdcs-scheduler", now=_now)
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def __call__(self, *, request: PrioritizeRequest, reason: str, message: str) -> None:
        """Write the event on the pod of a request; returns at once."""
        task = asyncio.get_running_loop().create_task(
            self._record(request=request, reason=reason, message=message)
        )
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)

    async def _record(self, *, request: PrioritizeRequest, reason: str, message: str) -> None:
        namespace, name = request.key
        metadata = {"name": name, "namespace": namespace, "uid": request.uid}
        await self._recorder.record(
            about={"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
            reason=reason,
            message=message,
            type_="Warning",
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Waiting pods come and go with every pod that is placed, 70 a second. News of some 50 ms is new enough, for it is
# kube-scheduler that tells which pod's turn it is.
_GATHER_SECONDS: Final = 0.05


class _InformerFreshness:
    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def is_synced(self) -> bool:
        return self._informer.synced.is_set()

    def age_seconds(self) -> float:
        return self._informer.last_contact_age()


@dataclass(frozen=True, kw_only=True)
class PodAdmission:
    """How new pods come to this scheduler.

    `listener`: where the webhook is served; None: it is not. `certificate`: the one that it is served with.
    `claim_list_namespace`: where the list of claims is kept for the admission policy; empty: it is not kept.
    """

    listener: socket.socket | None = None
    certificate: CertificateFiles | None = None
    claim_list_namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Monitoring:
    """Where kubelet asks how the extender is, and Prometheus what it measures.

    `health_port`: one of the listeners', which serves no scores; None: all serve all. `metrics_port`: None: metrics are
    served nowhere. `tls`: gives the context of the time for that port; None: it is plain HTTP.
    """

    health_port: int | None = None
    metrics_port: int | None = None
    tls: Callable[[], ssl.SSLContext] | None = None


async def serve(
    *,
    listeners: list[socket.socket],
    monitoring: Monitoring,
    stale_after_seconds: float,
    explain: bool,
    scheduler_name: str,
    admission: PodAdmission,
    topology_labels: Sequence[str],
) -> None:
    """Serve on `listeners` until SIGTERM or SIGINT, with a view kept by the API server of the usual configuration.

    Raises ConfigurationError when there is none.
    """
    api = await connect()
    view = DatasetView()
    # Without the right to list pods it still scores, as if no pods waited.
    demand, pods = waiting_pods(
        api=api, view=view, scheduler_name=scheduler_name, stale_after_seconds=stale_after_seconds
    )

    # Without the right to list nodes, or labels, all are equally near.
    topology = TopologyView(topology_labels)
    nodes = node_informer(api=api, topology=topology, keys=topology_labels)

    def on_dataset(key: Key, _: Object | None, dataset: Object | None) -> None:
        before = len(view)
        view.on_change(key, dataset)
        demand.on_dataset(key)
        if len(view) != before:
            claim_list.touch()

    informer = Informer(api=api, resource=DATASETS, on_change=on_dataset)
    app = Extender(
        view=view,
        freshness=_InformerFreshness(informer),
        stale_after_seconds=stale_after_seconds,
        health_port=monitoring.health_port,
        explain=explain,
        report=AnnotationEvents(api=api),
        demand=demand,
        places=topology.places,
    )
    claim_list = ClaimList(
        api=api,
        namespace=admission.claim_list_namespace,
        datasets=view,
        on_left_out=app.metrics.claims_left_out.set,
    )
    background = [_tidy_memory(informer)]
    if admission.claim_list_namespace:
        background.append(_once_listed(informer, claim_list))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with contextlib.AsyncExitStack() as serving:
            scores = HttpServer(app.handle, most_bytes=MAX_BODY_BYTES)
            await serving.enter_async_context(scores.serving(listeners))
            if admission.listener is not None and admission.certificate is not None:
                webhook = Webhook(
                    view=view, scheduler_name=scheduler_name, metrics=app.metrics, places=topology.places
                )
                reviews = HttpServer(webhook.handle, most_bytes=MAX_REVIEW_BYTES)
                await serving.enter_async_context(
                    reviews.serving([admission.listener], tls=admission.certificate.context)
                )
                background.append(admission.certificate.run())
            serving.enter_context(
                serve_metrics(app.metrics.registry, port=monitoring.metrics_port, tls=monitoring.tls)
            )
            await _until_one_ends(
                stop=stop, following=[informer.run(), pods.run(), nodes.run()], background=background
            )
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
        on_change=lambda key, _, pod: demand.on_pod(key, pod),
        clock=clock,
        gather=_GATHER_SECONDS,
    )
    return demand, informer


async def _until_one_ends(
    *,
    stop: asyncio.Event,
    following: Iterable[Coroutine[Any, Any, None]],
    background: Iterable[Coroutine[Any, Any, None]],
) -> None:
    """Run all tasks until `stop` is set or an informer ends; raises the error of that informer."""
    stopped = asyncio.create_task(stop.wait())
    informers = [asyncio.create_task(informer) for informer in following]
    background_tasks = [asyncio.create_task(task) for task in background]
    await asyncio.wait({*informers, stopped}, return_when=asyncio.FIRST_COMPLETED)
    # An informer only ends by a fault: an extender that learns nothing more must not go on answering.
    for task in (stopped, *background_tasks, *reversed(informers)):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _once_listed(informer: Informer, claim_list: ClaimList) -> None:
    """A list that was written before all Datasets are known would lack most of them."""
    await informer.synced.wait()
    await claim_list.run()


async def _tidy_memory(informer: Informer) -> None:
    """Exclude long-lived objects from garbage collection: its pauses are the slowest answers."""
    await informer.synced.wait()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
