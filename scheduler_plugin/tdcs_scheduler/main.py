"""`tdcs extender`: the process, in one pod with its kube-scheduler."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from tdcs.api import names
from tdcs.kube.configuration import ConfigurationError
from tdcs.trust.contexts import server_contexts
from tdcs.trust.identity import TRUST_HELP
from tdcs_scheduler.admission.certificate import CertificateError, CertificateFiles
from tdcs_scheduler.app import EXPLANATIONS
from tdcs_scheduler.serving import Admission, Monitoring, serve

_log: Final = logging.getLogger(__name__)

# The API server sends a bookmark about once a minute; three missed ones mean that it is gone.
DEFAULT_STALE_AFTER: Final = 180.0


class LogFormat(logging.Formatter):
    """Lines as of every process, but the explanations of answers: they are JSON and stay so, for programs."""

    def __init__(self) -> None:
        super().__init__(names.LOG_LINE)

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if record.name == EXPLANATIONS else super().format(record)


@click.command(name="extender")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; kube-scheduler is in the same pod.",
)
@click.option("--port", default=names.EXTENDER_PORT, show_default=True, type=click.IntRange(1, 65535))
@click.option(
    "--health-port",
    default=None,
    type=click.IntRange(1, 65535),
    help="One more port, on all addresses, with /healthz and /livez only.",
)
@click.option(
    "--metrics-port",
    default=None,
    type=click.IntRange(1, 65535),
    help="Port of /metrics, on all addresses, with --trust by TLS, for Prometheus' certificate alone; none by default.",
)
@click.option(
    "--trust",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TDCS_TRUST",
    help=TRUST_HELP,
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
@click.option(
    "--webhook-port",
    default=None,
    type=click.IntRange(1, 65535),
    help="One more port, on all addresses, at which the API server asks over HTTPS about new pods.",
)
@click.option(
    "--webhook-certificate",
    default=None,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with that port's certificate and key, tls.crt and tls.key; they are read anew when they change.",
)
@click.option(
    "--claim-list-namespace",
    default="",
    help=f"Namespace of the ConfigMap {names.CLAIM_LIST}, kept for the admission policy; empty: it is not kept.",
)
def command(
    *,
    host: str,
    port: int,
    health_port: int | None,
    metrics_port: int | None,
    trust: Path | None,
    stale_after: float,
    explain: bool,
    scheduler_name: str,
    webhook_port: int | None,
    webhook_certificate: Path | None,
    claim_list_namespace: str,
) -> None:
    """Run the scheduler extender: ranks nodes by the bytes of a pod's datasets that they hold."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormat())
    logging.basicConfig(level=os.environ.get("TDCS_LOG_LEVEL", "INFO"), handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if (webhook_port is None) != (webhook_certificate is None):
        raise click.UsageError("--webhook-port and --webhook-certificate go together: give both or none")
    try:
        certificate = (
            CertificateFiles(folder=webhook_certificate) if webhook_certificate is not None else None
        )
    except CertificateError as error:
        raise click.ClickException(f"the webhook cannot be served: {error}") from error
    with contextlib.ExitStack() as open_sockets:
        listeners = [open_sockets.enter_context(_listen(host=host, port=port, option="--port"))]
        if health_port is not None:
            other = _listen(host="", port=health_port, option="--health-port")
            listeners.append(open_sockets.enter_context(other))
        webhook = None
        if webhook_port is not None:
            webhook = open_sockets.enter_context(_listen(host="", port=webhook_port, option="--webhook-port"))
        _log.info("serving kube-scheduler on %s:%d", host, port)
        _run(
            serve(
                listeners=listeners,
                monitoring=Monitoring(
                    health_port=health_port, metrics_port=metrics_port, tls=server_contexts(trust)
                ),
                stale_after_seconds=stale_after,
                explain=explain,
                scheduler_name=scheduler_name,
                admission=Admission(
                    listener=webhook,
                    certificate=certificate,
                    claim_list_namespace=claim_list_namespace,
                ),
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
        except OSError as error:
            raise click.ClickException(f"the extender cannot run: {error}") from error
