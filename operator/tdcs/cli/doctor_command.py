"""`tdcs doctor`: reads what a user, a namespace and a cluster have, with the user's own rights, and says what lacks."""

import asyncio
import contextlib
from pathlib import Path

import click
from rich.markup import escape

from tdcs.api import names
from tdcs.cli.api_client import api_client, connection_options
from tdcs.cli.checkup import IN_CLUSTER, IN_NAMESPACE, Checked, CheckupFinding, Right, checkup
from tdcs.cli.console import Console
from tdcs.cli.explain.operator_lease import read_lease
from tdcs.cli.identity_checkup import RIGHTS_OF_OPERATOR, AccountAnswer, Accounts, accounts_of
from tdcs.cli.webhook_checkup import Webhooks, asked_services, ready_endpoints
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError, KubeError, NotFoundError
from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    CSI_NODES,
    DATASETS,
    ENDPOINT_SLICES,
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TRAINING_JOBS,
    VALIDATING_WEBHOOKS,
    Resource,
)

_MARKS = {"ok": "[green]ok[/green]", "lacks": "[red]lacks[/red]", "note": "note", "unknown": "unknown"}

NO_RIGHT = "cannot create resource"
"""What the API server says where a user may create no pods."""

_OPERATOR = "app.kubernetes.io/part-of=tdcs,app.kubernetes.io/component=operator"
"""Labels of the operator's pods."""

_NODE_PLUGIN = "app.kubernetes.io/part-of=tdcs,app.kubernetes.io/component in (csi,reader-holder)"
"""Labels of the pods of the node plugin, and of what holds the nodes' FUSE sessions."""

_OWN_KINDS = frozenset({"cacheclusters", "datasets", "preloads", "trainingjobs"})


@click.command(name="doctor")
@click.option("-n", "--namespace", help="The namespace to train in; default: that of the current context.")
@connection_options
def command(*, namespace: str | None, context: str | None, kubeconfig: Path | None) -> None:
    """Say what you, a namespace and the cluster lack for training jobs. Ends with 1 when something lacks."""

    async def read() -> Checked:
        async with api_client(kubeconfig=kubeconfig, context=context) as api:
            return await look(api, namespace=namespace or api.default_namespace or "default")

    try:
        checked = asyncio.run(read())
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    findings = checkup(checked)
    show(findings, namespace=checked.namespace, console=Console())
    if any(finding.state == "lacks" for finding in findings):
        raise SystemExit(1)


def show(findings: list[CheckupFinding], *, namespace: str, console: Console) -> None:
    titles = {"You": "You", "Namespace": f"Namespace {namespace}", "Cluster": "Cluster"}
    for about, title in titles.items():
        console.print(f"[bold]{escape(title)}[/bold]")
        for finding in findings:
            if finding.about == about:
                console.print(f"  {_MARKS[finding.state]}: {escape(finding.text)}", soft_wrap=True)


async def look(api: KubeApi, *, namespace: str) -> Checked:
    """All that is looked at; what may not be read is None.

    Raises:
        KubeError: the API server does not answer.
    """
    home, is_there = await _home(api, namespace)
    installed = True
    datasets: list[Object] | None = None
    clusters: list[Object] | None = None
    try:
        datasets = await _listed(api, DATASETS, namespace=namespace)
        clusters = await _listed(api, CACHE_CLUSTERS)
        if clusters is None:
            clusters = await _listed(api, CACHE_CLUSTERS, namespace=names.SYSTEM_NAMESPACE)
    except NotFoundError:
        installed = False
    plugins = await _listed(api, CSI_NODES)
    return Checked(
        namespace=namespace,
        now=utc_now(),
        rights=await _rights(api, namespace),
        user=await _user(api),
        home=home,
        is_there=is_there,
        installed=installed,
        datasets=datasets,
        jobs=await _listed(api, TRAINING_JOBS, namespace=namespace) if installed else None,
        secrets=await _secrets(api, namespace, datasets or ()),
        accounts=await _accounts(api, namespace, datasets or ()),
        quotas=await _listed(api, RESOURCE_QUOTAS, namespace=namespace),
        clusters=clusters,
        nodes=await _listed(api, NODES),
        drivers=None if plugins is None else frozenset(filter(None, map(_with_driver, plugins))),
        lease=await read_lease(api),
        pod_refusal=await _pod_refusal(api, namespace) if is_there else None,
        plugins=await _listed(api, PODS, namespace=names.SYSTEM_NAMESPACE, labels=_NODE_PLUGIN),
        webhooks=await _webhooks(api, namespace, home),
    )


async def _webhooks(api: KubeApi, namespace: str, home: Object | None) -> Webhooks:
    mutating = await _listed(api, MUTATING_WEBHOOKS)
    validating = await _listed(api, VALIDATING_WEBHOOKS)
    if mutating is None or validating is None:
        return Webhooks()
    configurations = [*mutating, *validating]
    labels = None if home is None else home["metadata"].get("labels") or {}
    addresses: dict[tuple[str, str], int | None] = {}
    for place, name in sorted(asked_services(configurations, namespace=namespace, labels=labels)):
        slices = await _listed(
            api, ENDPOINT_SLICES, namespace=place, labels=f"kubernetes.io/service-name={name}"
        )
        addresses[place, name] = None if slices is None else ready_endpoints(slices)
    return Webhooks(
        configurations=configurations,
        services=await _listed(api, SERVICES, namespace=names.SYSTEM_NAMESPACE),
        addresses=addresses,
    )


async def _pod_refusal(api: KubeApi, namespace: str) -> str | None:
    """Why the namespace takes no plain pod; empty: it does. None: the user may create none, so it is not known.

    The server only checks the pod: its admission and the webhooks that are asked answer before a job's pods are made.
    """
    metadata = {"name": "tdcs-doctor", "namespace": namespace}
    container = {
        "name": "main",
        "image": "tdcs-doctor",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    try:
        await api.create(PODS, obj=pod, dry_run=True)
    except KubeError as error:
        return None if NO_RIGHT in str(error) else str(error)
    return ""


def _with_driver(plugins: Object) -> str:
    """The node of a CSINode that has the driver of TDCS; else empty."""
    drivers = (plugins.get("spec") or {}).get("drivers") or ()
    has_driver = any(driver.get("name") == names.CSI_DRIVER for driver in drivers)
    return str(plugins["metadata"]["name"]) if has_driver else ""


async def _listed(
    api: KubeApi, resource: Resource, *, namespace: str | None = None, labels: str | None = None
) -> list[Object] | None:
    with contextlib.suppress(ForbiddenError):
        return (await api.list(resource, namespace=namespace, labels=labels)).items
    return None


async def _home(api: KubeApi, namespace: str) -> tuple[Object | None, bool]:
    """The Namespace, and whether there is one as far as that is known."""
    with contextlib.suppress(ForbiddenError):
        home = await api.get(NAMESPACES, name=namespace)
        return home, home is not None
    return None, True


async def _secrets(
    api: KubeApi, namespace: str, datasets: list[Object] | tuple[Object, ...]
) -> dict[str, frozenset[str] | None] | None:
    """The fields of the Secrets that Datasets name; None for one that is not there. None: Secrets may not be read."""
    fields_of_secrets: dict[str, frozenset[str] | None] = {}
    for dataset in datasets:
        source = (dataset.get("spec") or {}).get("source") or {}
        name = (source.get("secretRef") or {}).get("name")
        if not name or name in fields_of_secrets:
            continue
        try:
            secret = await api.get(SECRETS, name=name, namespace=namespace)
        except ForbiddenError:
            return None
        fields_of_secrets[name] = None if secret is None else frozenset(secret.get("data") or {})
    return fields_of_secrets


async def _accounts(api: KubeApi, namespace: str, datasets: list[Object] | tuple[Object, ...]) -> Accounts:
    """The ServiceAccounts that Datasets name, and whether the operator may act as them."""
    account_names = accounts_of(datasets)
    if not account_names:
        return Accounts()
    operator = await _operator_account(api)
    answers: dict[str, AccountAnswer] = {}
    for name in account_names:
        account, readable = None, True
        try:
            account = await api.get(SERVICE_ACCOUNTS, name=name, namespace=namespace)
        except ForbiddenError:
            readable = False
        missing: tuple[tuple[str, str], ...] | None = None
        with contextlib.suppress(ForbiddenError, NotFoundError):
            missing = tuple(
                [
                    right
                    for right in RIGHTS_OF_OPERATOR
                    if not await _may_use_account(api, operator, namespace, name, right)
                ]
            )
        answers[name] = AccountAnswer(account=account, readable=readable, missing_rights=missing)
    return Accounts(operator=operator, answers=answers)


async def _operator_account(api: KubeApi) -> str:
    """The operator's ServiceAccount as NAMESPACE:NAME; where its pods may not be read, that of the chart's default."""
    pods = await _listed(api, PODS, namespace=names.SYSTEM_NAMESPACE, labels=_OPERATOR)
    accounts = (str((pod.get("spec") or {}).get("serviceAccountName") or "") for pod in pods or ())
    return f"{names.SYSTEM_NAMESPACE}:{next(filter(None, accounts), names.OPERATOR_ACCOUNT)}"


async def _may_use_account(
    api: KubeApi, operator: str, namespace: str, name: str, right: tuple[str, str]
) -> bool:
    """Whether the operator has a right on one account, as the API server says."""
    verb, part = right
    home, _, _ = operator.partition(":")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"]
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "resource": SERVICE_ACCOUNTS.plural,
        **({"subresource": part} if part else {}),
        "name": name,
    }
    review = {
        "apiVersion": LOCAL_SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": LOCAL_SUBJECT_ACCESS_REVIEWS.kind,
        "metadata": {"namespace": namespace},
        "spec": {
            "user": f"system:serviceaccount:{operator}",
            "groups": groups,
            "resourceAttributes": attributes,
        },
    }
    answer = await api.create(LOCAL_SUBJECT_ACCESS_REVIEWS, obj=review)
    return bool((answer.get("status") or {}).get("allowed"))


async def _rights(api: KubeApi, namespace: str) -> dict[Right, bool]:
    """Whether the user has each right; nothing where the server does not say."""
    rights: dict[Right, bool] = {}
    for verb, plural in (*IN_NAMESPACE, *IN_CLUSTER):
        resource, _, part = plural.partition("/")
        attributes = {
            "verb": verb,
            "resource": resource,
            **({"subresource": part} if part else {}),
            "group": names.GROUP if plural in _OWN_KINDS else "",
            **({"namespace": namespace} if (verb, plural) in IN_NAMESPACE else {}),
        }
        review = {
            "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SELF_SUBJECT_ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = await api.create(SELF_SUBJECT_ACCESS_REVIEWS, obj=review)
        except (ForbiddenError, NotFoundError):
            return {}
        rights[verb, plural] = bool((answer.get("status") or {}).get("allowed"))
    return rights


async def _user(api: KubeApi) -> str:
    """Who asks, as the API server knows them; empty where it does not say."""
    review = {
        "apiVersion": SELF_SUBJECT_REVIEWS.api_version,
        "kind": SELF_SUBJECT_REVIEWS.kind,
        "metadata": {},
    }
    try:
        answer = await api.create(SELF_SUBJECT_REVIEWS, obj=review)
    except (ForbiddenError, NotFoundError):
        return ""
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
