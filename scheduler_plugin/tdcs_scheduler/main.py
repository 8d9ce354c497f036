"""`tdcs extender`: the process, in one pod with its kube-scheduler."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from tdcs.api import names
from tdcs.kube.configuration import ConfigurationError
from tdcs.listening import listen
from tdcs.model.nearness import TOPOLOGY_LABELS
from tdcs.options import FOLDER, PORT, certificates, metrics_port, option, options_of
from tdcs.trust.contexts import server_contexts
from tdcs_scheduler.app import EXPLANATIONS
from tdcs_scheduler.serving import Monitoring, PodAdmission, serve
from tdcs_scheduler.webhook_certificate import CertificateError, CertificateFiles

_log: Final = logging.getLogger(__name__)


class LogFormat(logging.Formatter):
    """Lines as of every process, but the explanations of answers: they are JSON and stay so, for programs."""

    def __init__(self) -> None:
        super().__init__(names.LOG_LINE)

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if record.name == EXPLANATIONS else super().format(record)


@dataclass(frozen=True, kw_only=True)
class ExtenderSettings:
    host: str = option("Address to listen on; kube-scheduler is in the same pod.", default="127.0.0.1")
    port: int = option("Port for kube-scheduler.", default=names.EXTENDER_PORT, type=click.IntRange(1, 65535))
    health_port: int = option(
        "One more port, on all addresses, with /healthz and /livez only; 0: none.", default=0, type=PORT
    )
    metrics_port: int = metrics_port(default=0)
    trust: Path | None = certificates()
    stale_after_seconds: float = option(
        "Seconds without a word from the API server until /healthz is red.",
        default=180.0,
        type=click.FloatRange(min=1),
        flag="--stale-after",
    )
    explain: bool = option(
        "Log the reason for every answer to a pod with datasets.",
        default=False,
        env="TDCS_EXTENDER_EXPLAIN",
        chart="extender.explain",
    )
    scheduler_name: str = option(
        "Of the kube-scheduler that asks: what its waiting pods need is left to them.",
        default=names.SCHEDULER_NAME,
        chart="scheduler.name",
    )
    webhook_port: int = option(
        "One more port, on all addresses, at which the API server asks over HTTPS about new pods; 0: none.",
        default=0,
        type=PORT,
    )
    webhook_certificate: Path | None = option(
        "Folder with that port's certificate and key, tls.crt and tls.key; they are read again when they change.",
        default=None,
        type=FOLDER,
    )
    topology_labels: tuple[str, ...] = option(
        "Label of nodes that says where they are, the nearest level first; may be repeated, and empty: none. Where no "
        "node with a pod's data has room, one in the same rack or zone is better than one that is far.",
        default=TOPOLOGY_LABELS,
        flag="--topology-label",
    )
    claim_list_namespace: str = option(
        f"Namespace of the ConfigMap {names.CLAIM_LIST}, kept for the admission policy; empty: it is not kept.",
        default="",
    )

    def __post_init__(self) -> None:
        if bool(self.webhook_port) != (self.webhook_certificate is not None):
            raise ValueError("--webhook-port and --webhook-certificate go together: give both or none")


@click.command(name="extender")
@options_of(ExtenderSettings)
def command(settings: ExtenderSettings) -> None:
    """Run the scheduler extender: ranks nodes by the bytes of a pod's datasets that they hold."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormat())
    logging.basicConfig(level=os.environ.get("TDCS_LOG_LEVEL", "INFO"), handlers=[handler])
    folder = settings.webhook_certificate
    try:
        certificate = CertificateFiles(folder=folder) if folder is not None else None
    except CertificateError as error:
        raise click.ClickException(f"the webhook cannot be served: {error}") from error
    with contextlib.ExitStack() as open_sockets:

        def listen(host: str, port: int, option: str) -> socket.socket:
            return open_sockets.enter_context(_listen(host=host, port=port, option=option))

        listeners = [listen(settings.host, settings.port, "--port")]
        if settings.health_port:
            listeners.append(listen("", settings.health_port, "--health-port"))
        webhook = listen("", settings.webhook_port, "--webhook-port") if settings.webhook_port else None
        _log.info("serving kube-scheduler on %s:%d", settings.host, settings.port)
        _run(
            serve(
                listeners=listeners,
                monitoring=Monitoring(
                    health_port=settings.health_port or None,
                    metrics_port=settings.metrics_port or None,
                    tls=server_contexts(settings.trust),
                ),
                stale_after_seconds=settings.stale_after_seconds,
                explain=settings.explain,
                scheduler_name=settings.scheduler_name,
                admission=PodAdmission(
                    listener=webhook,
                    certificate=certificate,
                    claim_list_namespace=settings.claim_list_namespace,
                ),
                topology_labels=settings.topology_labels,
            )
        )


def _listen(*, host: str, port: int, option: str) -> socket.socket:
    try:
        return listen(host=host, port=port)
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
        except OSError as error:
            raise click.ClickException(f"the extender cannot run: {error}") from error
