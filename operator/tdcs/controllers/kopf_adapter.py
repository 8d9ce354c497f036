"""kopf around the operator: the event source of the custom resources, start and stop, signals, health."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import kopf
from kopf._core.engines.peering import Identity
from lightkube.config.kubeconfig import SingleConfig

from tdcs.controllers.operator import Operator, StaleError
from tdcs.kube.resources import CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS, Resource

IDENTITY = "tdcs-operator"


def connection_of(config: SingleConfig) -> kopf.ConnectionInfo:
    """kopf's credentials from the configuration that our own client uses, so that both talk to one server."""
    cluster, user = config.cluster, config.user
    token = user.token if user else None
    if user and user.token_file:
        token = Path(user.token_file).read_text().strip()  # read anew at each login: it is rotated
    return kopf.ConnectionInfo(
        server=cluster.server,
        ca_path=_path(config, cluster.certificate_auth),
        ca_data=cluster.certificate_auth_data,
        insecure=cluster.insecure,
        token=token,
        certificate_path=_path(config, user.client_cert if user else None),
        certificate_data=user.client_cert_data if user else None,
        private_key_path=_path(config, user.client_key if user else None),
        private_key_data=user.client_key_data if user else None,
        default_namespace=config.namespace,
    )


def _path(config: SingleConfig, name: str | None) -> str | None:
    return str(config.abs_file(name)) if name else None


def registry_of(operator: Operator, *, config: SingleConfig) -> kopf.OperatorRegistry:
    """kopf's handlers for one operator; nothing is registered globally."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def log_in(**_: object) -> kopf.ConnectionInfo:
        return connection_of(config)

    # Without its views the operator can do nothing: kubelet starts it again, with a growing pause.
    @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        settings.posting.enabled = False  # events are our own: counted, and one for each change
        settings.peering.standalone = True
        settings.scanning.disabled = True  # so that no right to list definitions and namespaces is needed
        settings.watching.server_timeout = 300
        settings.networking.request_timeout = 30
        await operator.start()

    @kopf.on.cleanup(registry=registry)
    async def clean_up(**_: object) -> None:
        await operator.stop()

    @kopf.on.probe(registry=registry, id="views")
    async def views(**_: object) -> Any:
        try:
            return dict(operator.health())
        except StaleError as error:
            # Only this exception turns the endpoint red at once.
            raise kopf.PermanentError(str(error)) from error

    for resource in (CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS):
        _follow(registry, operator, resource)
    return registry


def _follow(registry: kopf.OperatorRegistry, operator: Operator, resource: Resource) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)
    async def seen(event: kopf.RawEvent, **_: object) -> None:
        operator.seen(resource, dict(event["object"]), deleted=event["type"] == "DELETED")
        if event["type"] is None:  # from a list, at the start and whenever a watch could not go on
            operator.listed_again(resource)


async def run(
    *,
    operator: Operator,
    config: SingleConfig,
    liveness_endpoint: str | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run until a signal comes or `stop` is set."""
    with contextlib.suppress(asyncio.CancelledError):
        await kopf.operator(
            registry=registry_of(operator, config=config),
            clusterwide=True,
            standalone=True,
            # By default it asks who runs the process, and in a container that user has no name.
            identity=Identity(IDENTITY),
            liveness_endpoint=liveness_endpoint,
            stop_flag=stop,
        )
