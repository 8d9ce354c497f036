"""How the operator of a cluster is set, as its Deployment says: what it decides depends on that."""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from tdcs.control.context import Settings
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DEPLOYMENTS
from tdcs.options import parse

OPERATOR = "app.kubernetes.io/component=operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSettings:
    """The settings; None where they are not known, and why."""

    settings: Settings | None = None
    unknown: str = ""


async def read_settings(api: KubeApi, *, namespace: str) -> FoundSettings:
    """The settings of the operator in this namespace."""
    cannot = "how the queue is set (preemption, aging, order, nodes), so that the chart's defaults are taken"
    try:
        deployments = (await api.list(DEPLOYMENTS, namespace=namespace, labels=OPERATOR)).items
    except ForbiddenError:
        return FoundSettings(unknown=f"{cannot}: you may not list Deployments in namespace {namespace}")
    commands = [command for deployment in deployments if (command := _arguments(deployment)) is not None]
    if len(commands) != 1:
        count = "no" if not commands else f"{len(commands)}"
        text = f"{cannot}: namespace {namespace} has {count} Deployments of an operator (label {OPERATOR})"
        return FoundSettings(unknown=text)
    try:
        return FoundSettings(settings=parse(Settings, commands[0]))
    except click.ClickException as error:
        return FoundSettings(unknown=f"{cannot}: this command does not know {error.format_message()}")


def _arguments(deployment: Object) -> Sequence[str] | None:
    """What the operator is started with; None where it is none."""
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        command, *options = container.get("args") or ("",)
        if command == "operator":
            return [str(option) for option in options]
    return None
