"""`tdcs operator`: the process that keeps cache clusters, datasets and training jobs as they are asked for."""

import asyncio
import os
import socket
import tempfile
import uuid
from pathlib import Path
from typing import Literal

import aiohttp
import click

from tdcs.api import names
from tdcs.control.context import Settings
from tdcs.control.dataset.read_failures import ReadFailures
from tdcs.control.operator import kopf_adapter
from tdcs.control.operator.cache_factory import alluxio_caches, serve_manifests
from tdcs.control.operator.operator import Operator
from tdcs.control.operator.operator_health import serve_health
from tdcs.control.operator.operator_log import configure_log
from tdcs.control.operator.scaler_service import serve_scaler
from tdcs.control.release_certificates import Certificates
from tdcs.decide.forbidden_addresses import parse_networks
from tdcs.engine import http_answers
from tdcs.garbage import spare_lasting_objects
from tdcs.kube.client import KubernetesClient
from tdcs.kube.configuration import ConfigurationError, load_access
from tdcs.kube.lease import Lease
from tdcs.kube.lease_loss import hear_signals, lease_losses, replace_process
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import operator_url
from tdcs.trust.metrics_server import serve_metrics
from tdcs.trust.settings import TrustSettings


@click.command(name="operator")
@click.option(
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    envvar="TDCS_NAMESPACE",
    help="Namespace of the CacheClusters and of their pods.",
)
@click.option(
    "--scope",
    type=click.Choice(["cluster", "namespaces"]),
    default="cluster",
    show_default=True,
    help="Where it works: in every namespace, or in its own and those of the next two options.",
)
@click.option(
    "--dataset-namespace",
    "dataset_namespaces",
    multiple=True,
    help="With --scope namespaces: a namespace with Datasets and Preloads; may be repeated.",
)
@click.option(
    "--job-namespace",
    "job_namespaces",
    multiple=True,
    help="With --scope namespaces: a namespace with TrainingJobs; may be repeated.",
)
@click.option(
    "--image",
    default=names.DEFAULT_IMAGE,
    show_default=True,
    envvar="TDCS_ALLUXIO_IMAGE",
    help="Image of the cache's pods where a CacheCluster names none.",
)
@click.option(
    "--agent-image",
    default=names.DEFAULT_AGENT_IMAGE,
    show_default=True,
    envvar="TDCS_AGENT_IMAGE",
    help="Image of the cache agents in the workers' pods: the operator's own.",
)
@click.option(
    "--image-pull-secret",
    "image_pull_secrets",
    multiple=True,
    help="Secret in that namespace with which the cache's pods pull their image; may be repeated.",
)
@click.option(
    "--scheduler-name",
    # Not by envvar: click takes an empty variable for one that is not set.
    default=lambda: os.environ.get("TDCS_SCHEDULER_NAME", names.SCHEDULER_NAME),
    show_default=f"$TDCS_SCHEDULER_NAME, else {names.SCHEDULER_NAME}",
    help="Who places the pods of jobs that name no scheduler; empty: the cluster's default scheduler.",
)
@click.option(
    "--secrets-role",
    default=names.SECRETS_ROLE,
    show_default=True,
    help="ClusterRole that allows to read Secrets; messages name it to users who have to bind it.",
)
@click.option(
    "--service-account",
    default=names.OPERATOR_ACCOUNT,
    show_default=True,
    help="The operator's own service account; messages name it to users who have to bind a role to it.",
)
@click.option(
    "--internal-network",
    "internal_networks",
    multiple=True,
    help="Network of the cluster, such as 10.96.0.0/12, beside those that nodes and ServiceCIDRs name: Datasets may "
    "use a store there only by a rule that names it. May be given several times.",
)
@click.option(
    "--worker-return-seconds",
    type=click.FloatRange(min=1),
    default=Settings().return_seconds,
    show_default=True,
    help="How long a cache worker may be away, as during a restart, before what it held is loaded on another node.",
)
@click.option(
    "--revoked-keys-seconds",
    type=click.FloatRange(min=10),
    default=Settings().revoked_seconds,
    show_default=True,
    help="How long a Dataset that is mounted may have no keys that its source takes, before its volume goes, "
    f"which pods that run keep. Sources are asked as often, and every {Settings().keys_check_seconds:.0f} s at least.",
)
@click.option(
    "--trust",
    type=click.Choice(["off", "selfSigned", "existing", "certManager"]),
    default="off",
    show_default=True,
    help="Certificates by which agents, readers and this process know each other: of an authority that this process "
    "makes and renews, or from Secrets that you or cert-manager make; off: every caller is believed.",
)
@click.option(
    "--trust-prefix",
    default="tdcs-trust",
    show_default=True,
    help="How the names of the Secrets with certificates begin, in that namespace.",
)
@click.option(
    "--network-probe",
    is_flag=True,
    help="Have a pod that no NetworkPolicy admits try to reach each cache, once an hour.",
)
@click.option(
    "--probe-target",
    "probe_targets",
    multiple=True,
    help="HOST:PORT that this pod tries, too; may be repeated.",
)
@click.option(
    "--kueue",
    is_flag=True,
    help=f"Answer the AdmissionChecks of Kueue with the controller {names.KUEUE_CONTROLLER}.",
)
@click.option(
    "--lease",
    default="tdcs-operator",
    show_default=True,
    help="Lease in that namespace by which one of several operators works and the others stand by; empty: none.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of /livez and /healthz; 0: none.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=8081,
    show_default=True,
    help="Port of /metrics, with --trust by TLS, for Prometheus' certificate alone; 0: none.",
)
@click.option(
    "--scaler-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port of KEDA's external scaler (gRPC); 0: none.",
)
@click.option(
    "--manifest-port",
    type=click.IntRange(0, 65535),
    default=names.MANIFEST_PORT,
    show_default=True,
    help="Port at which agents and node plugins fetch manifests; 0: none, and agents have them from each other.",
)
@click.option(
    "--manifest-address",
    envvar="POD_IP",
    default="127.0.0.1",
    show_default=True,
    help="Address of this process under which agents reach that port. Also $POD_IP.",
)
@click.option(
    "--manifest-folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(tempfile.gettempdir()) / "tdcs-manifests",
    show_default=True,
    help="Where manifests are kept: about 60 bytes a file of every dataset. It may be empty at each start.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Default: $KUBECONFIG, ~/.kube/config, or the service account of the pod.",
)
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True)
@click.option("--verbose", is_flag=True, help="Log what the framework does, too.")
def command(
    namespace: str,
    scope: str,
    dataset_namespaces: tuple[str, ...],
    job_namespaces: tuple[str, ...],
    image: str,
    agent_image: str,
    image_pull_secrets: tuple[str, ...],
    scheduler_name: str,
    secrets_role: str,
    service_account: str,
    internal_networks: tuple[str, ...],
    trust: Literal["off", "selfSigned", "existing", "certManager"],
    trust_prefix: str,
    worker_return_seconds: float,
    revoked_keys_seconds: float,
    network_probe: bool,
    probe_targets: tuple[str, ...],
    kueue: bool,
    lease: str,
    health_port: int,
    metrics_port: int,
    scaler_port: int,
    manifest_port: int,
    manifest_address: str,
    manifest_folder: Path,
    kubeconfig: Path | None,
    log_format: str,
    verbose: bool,
) -> None:
    """Run the operator, until a signal comes."""
    configure_log(log_format, verbose=verbose)
    if scope == "cluster" and (dataset_namespaces or job_namespaces):
        raise click.UsageError("--dataset-namespace and --job-namespace belong to --scope namespaces")
    try:
        parse_networks(internal_networks)
    except ValueError as error:
        raise click.UsageError(f"--internal-network: {error}") from error
    hear_signals()
    losses = lease_losses(os.environ)

    async def run() -> None:
        try:
            access = await load_access(kubeconfig=kubeconfig)
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from error
        folder = ManifestFolder(manifest_folder)
        folder.clear_partial()
        settings = Settings(
            namespace=namespace,
            dataset_namespaces=dataset_namespaces if scope == "namespaces" else None,
            job_namespaces=job_namespaces if scope == "namespaces" else None,
            image=image,
            agent_image=agent_image,
            image_pull_secrets=image_pull_secrets,
            scheduler_name=scheduler_name,
            secrets_role=secrets_role,
            service_account=service_account,
            return_seconds=worker_return_seconds,
            revoked_seconds=revoked_keys_seconds,
            keys_check_seconds=min(revoked_keys_seconds, Settings().keys_check_seconds),
            network_probe=network_probe,
            probe_targets=probe_targets,
            kueue=kueue,
            internal_networks=internal_networks,
            api_server_addresses=tuple(filter(None, [os.environ.get("KUBERNETES_SERVICE_HOST")])),
        )
        spare_lasting_objects()
        api = KubernetesClient(access=access, may_write=lambda: held is None or held.is_held())
        # A pod's container that starts again is the same holder: the one before it is certainly dead.
        identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        held = Lease(api=api, namespace=namespace, name=lease, identity=identity) if lease else None
        certificates = None
        if trust != "off":
            certificates = Certificates(
                api=api, namespace=namespace, settings=TrustSettings(provider=trust, prefix=trust_prefix)
            )
        tls = certificates.contexts if certificates is not None else None
        connector = aiohttp.TCPConnector(ssl=tls.following_client() if tls is not None else True)
        async with http_answers.open_session(connector) as session:
            caches = alluxio_caches(
                namespace=namespace,
                folder=folder,
                manifest_url=operator_url(
                    address=f"{manifest_address}:{manifest_port}", secure=tls is not None
                )
                if manifest_port
                else "",
                session=session,
                identify=certificates.identify if certificates is not None else None,
            )
            operator = Operator(
                api=api,
                caches=caches,
                settings=settings,
                lease=held,
                on_lease_lost=lambda: replace_process(losses=losses + 1),
                lease_losses=losses,
                certificates=certificates,
            )
            async with (
                serve_health(operator.health, port=health_port),
                serve_manifests(
                    folder,
                    port=manifest_port,
                    known=operator.known_agents,
                    obtain=caches.obtain,
                    report=ReadFailures(operator.context).report,
                    take_waits=operator.take_waits,
                    tls=tls,
                ),
                serve_scaler(operator.context.stores, port=scaler_port),
            ):
                shown = tls.server if tls is not None else None
                with serve_metrics(operator.metrics.registry, port=metrics_port or None, tls=shown):
                    await kopf_adapter.run(operator=operator, access=access)

    asyncio.run(run())
