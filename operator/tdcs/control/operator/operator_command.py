"""`tdcs operator`: the process that keeps cache clusters, datasets and training jobs as they are asked for."""

import asyncio
import gc
import logging
import os
import socket
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import aiohttp
import click
import kopf

from tdcs.api import names
from tdcs.control.context import Settings
from tdcs.control.dataset.access.claim_servers import ClaimServers
from tdcs.control.dataset.read_failures import ReadFailures
from tdcs.control.operator import kopf_adapter
from tdcs.control.operator.cache_factory import cluster_caches, serve_manifests
from tdcs.control.operator.operator import Operator
from tdcs.control.operator.operator_health import serve_health
from tdcs.control.operator.scaler_service import serve_scaler
from tdcs.control.release_certificates import Certificates
from tdcs.decide.forbidden_addresses import parse_networks
from tdcs.engine import http_answers
from tdcs.kube.client import KubernetesClient
from tdcs.kube.configuration import ConfigurationError, load_access
from tdcs.kube.lease import Lease
from tdcs.kube.lease_loss import earlier_failures, hear_signals, lease_losses, replace_process
from tdcs.listening import at
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import operator_url
from tdcs.options import FOLDER, PORT, metrics_port, option, options_of
from tdcs.trust.metrics_server import serve_metrics
from tdcs.trust.settings import TrustSettings

NOISY = ("aiohttp.access", "kopf.activities")
"""Loggers of what the framework does, which says nothing new to a reader of the operator's own lines."""


YOUNG_OBJECTS = 5_000
YOUNGER = 20
OLDER = 100


def spare_lasting_objects() -> None:
    """Leave out of all collections from now on what exists now, and collect less often.

    A full collection visits every object in one go: with the modules of the API server's client alone it holds the
    event loop for some 100 ms. What is frozen is still freed when nothing refers to it; only cycles in it stay.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNGER, OLDER)


def configure_log(form: str, *, verbose: bool) -> None:
    """Have each line name its logger and its level: among the keys of JSON, the logger is `logger`."""
    kopf.configure(verbose=verbose, log_format=kopf.LogFormat.JSON)
    for handler in logging.getLogger().handlers:
        if form == "json":
            handler.addFilter(_with_logger)
        else:
            handler.setFormatter(logging.Formatter(names.LOG_LINE))
    if not verbose:
        for noisy in NOISY:
            logging.getLogger(noisy).setLevel(logging.WARNING)


def _with_logger(record: logging.LogRecord) -> bool:
    """Give a record's logger as a field of its own: of its usual ones, kopf's JSON has the message only."""
    record.logger = record.name
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings(Settings):
    """What the process is given next to what its controllers need."""

    trust: Literal["off", "selfSigned", "existing", "certManager"] = option(
        "Certificates by which agents, readers and this process know each other: of an authority that this process "
        "makes and renews, or from Secrets that you or cert-manager make; off: every caller is believed.",
        default="off",
    )
    trust_prefix: str = option(
        "How the names of the Secrets with certificates begin, in that namespace.", default="tdcs-trust"
    )
    lease: str = option(
        "Lease in that namespace by which one of several operators works and the others stand by; empty: none.",
        default="tdcs-operator",
    )
    health_port: int = option("Port of /livez and /healthz; 0: none.", default=8080, type=PORT)
    metrics_port: int = metrics_port(default=8081)
    scaler_port: int = option("Port of KEDA's external scaler (gRPC); 0: none.", default=0, type=PORT)
    manifest_port: int = option(
        "Port at which agents and node plugins fetch manifests; 0: none, and agents have them from each other.",
        default=names.MANIFEST_PORT,
        type=PORT,
    )
    manifest_address: str = option(
        "Address of this process under which agents reach that port.", default="127.0.0.1", env="POD_IP"
    )
    manifest_folder: Path = option(
        "Where manifests are kept: about 60 bytes a file of every dataset. It may be empty at each start.",
        default=Path(tempfile.gettempdir()) / "tdcs-manifests",
        type=FOLDER,
    )
    kubeconfig: Path | None = option(
        "Default: $KUBECONFIG, ~/.kube/config, or the service account of the pod.",
        default=None,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
    )
    log_format: Literal["plain", "json"] = option(
        "Lines of text, or JSON for programs.", default="plain", chart="operator.logFormat"
    )
    verbose: bool = option("Log what the framework does, too.", default=False)

    def __post_init__(self) -> None:
        if self.scope == "cluster" and (self.dataset_namespaces or self.job_namespaces):
            raise ValueError("--dataset-namespace and --job-namespace belong to --scope namespaces")
        try:
            parse_networks(self.internal_networks)
        except ValueError as error:
            raise ValueError(f"--internal-network: {error}") from error


@click.command(name="operator")
@options_of(OperatorSettings)
def command(settings: OperatorSettings) -> None:
    """Run the operator, until a signal comes."""
    configure_log(settings.log_format, verbose=settings.verbose)
    settings = replace(
        settings,
        keys_check_seconds=min(settings.revoked_seconds, settings.keys_check_seconds),
        api_server_addresses=tuple(filter(None, [os.environ.get("KUBERNETES_SERVICE_HOST")])),
    )
    namespace = settings.namespace
    hear_signals()
    losses = lease_losses(os.environ)

    async def run() -> None:
        try:
            access = await load_access(kubeconfig=settings.kubeconfig)
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from error
        folder = ManifestFolder(settings.manifest_folder)
        folder.clear_partial()
        spare_lasting_objects()
        api = KubernetesClient(access=access, may_write=lambda: held is None or held.is_held())
        # A pod's container that starts again is the same holder: the one before it is certainly dead.
        identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        held = (
            Lease(api=api, namespace=namespace, name=settings.lease, identity=identity)
            if settings.lease
            else None
        )
        certificates = None
        if settings.trust != "off":
            certificates = Certificates(
                api=api,
                namespace=namespace,
                settings=TrustSettings(provider=settings.trust, prefix=settings.trust_prefix),
            )
        tls = certificates.contexts if certificates is not None else None
        connector = aiohttp.TCPConnector(ssl=tls.following_client() if tls is not None else True)
        claims = ClaimServers(api=api, image=settings.agent_image)
        async with http_answers.open_session(connector) as session:
            address = at(settings.manifest_address, settings.manifest_port)
            operator = Operator(
                api=api,
                caches=lambda objects: cluster_caches(
                    objects,
                    api=api,
                    namespace=namespace,
                    folder=folder,
                    manifest_url=operator_url(address=address, secure=tls is not None)
                    if settings.manifest_port
                    else "",
                    session=session,
                    identify=certificates.identify if certificates is not None else None,
                    claims=claims,
                ),
                settings=settings,
                lease=held,
                on_lease_lost=lambda: replace_process(
                    losses=losses + 1, failures=operator.metrics.failures()
                ),
                lease_losses=losses,
                earlier_failures=earlier_failures(os.environ),
                certificates=certificates,
            )
            async with (
                serve_health(operator.health, port=settings.health_port),
                serve_manifests(
                    folder,
                    port=settings.manifest_port,
                    known_agents=operator.known_agents,
                    topology=operator.topology,
                    obtain=operator.obtain,
                    report=ReadFailures(operator.context).report,
                    take_waits=operator.take_waits,
                    tls=tls,
                ),
                serve_scaler(operator.context.stores, port=settings.scaler_port),
            ):
                server_tls = tls.server if tls is not None else None
                with serve_metrics(
                    operator.metrics.registry, port=settings.metrics_port or None, tls=server_tls
                ):
                    try:
                        await kopf_adapter.run(operator=operator, access=access)
                    finally:
                        await claims.close()

    asyncio.run(run())
