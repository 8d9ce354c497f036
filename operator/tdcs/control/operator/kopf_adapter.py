"""kopf around the operator: login, start and stop, signals. It follows no resource: informers do (`informers`)."""

import asyncio
import contextlib
import gc
import itertools
from collections.abc import Iterator
from typing import Any, cast

import kopf
from kubernetes.aio.client import Configuration

from tdcs.control.operator.operator import Operator
from tdcs.kube.configuration import ApiAccess
from tdcs.kube.informer import backoff

IDENTITY = "tdcs-operator"


def connection_of(configuration: Configuration, *, authorization: str | None) -> kopf.ConnectionInfo:
    """kopf's credentials from the configuration that our own client uses, so that both talk to one server."""
    scheme, _, token = (authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )


class Endless:
    """Pauses between kopf's tries, in seconds. It would end the process by the error of the last one."""

    def __iter__(self) -> Iterator[float]:
        return (backoff(failures=failures) for failures in itertools.count(1))


def registry_of(operator: Operator, *, access: ApiAccess) -> kopf.OperatorRegistry:
    """kopf's handlers for one operator; nothing is registered globally."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: object) -> kopf.ConnectionInfo:
        # kopf asks at its start, and again when the server has refused what it got.
        await access.renew(refused=access.configuration)
        return connection_of(access.configuration, authorization=await access.authorization())

    # It waits for its views itself. Without the right to see something it can do nothing: kubelet starts it again.
    @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        settings.posting.enabled = False  # events are our own: counted, and one for each change
        settings.peering.standalone = True
        settings.scanning.disabled = True  # so that no right to list definitions and namespaces is needed
        settings.networking.request_timeout = 30
        settings.networking.error_backoffs = Endless()
        await operator.start()
        gc.freeze()  # the cluster as it was found: a collection, which stops all, need not visit it each time

    @kopf.on.cleanup(registry=registry)
    async def clean_up(**_: object) -> None:
        await operator.stop()

    return registry


async def run(
    *,
    operator: Operator,
    access: ApiAccess,
    stop: asyncio.Event | None = None,
) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await kopf.operator(
            registry=registry_of(operator, access=access),
            clusterwide=True,  # it looks into no namespace at all
            standalone=True,
            # By default it asks who runs the process, and in a container that user has no name.
            # kopf does not export the type, which is that of a string.
            identity=cast("Any", IDENTITY),
            stop_flag=stop,
        )
