"""`tdcs explain`: why a job waits, or why each of its pods is where it is. Reads the API server and nothing else."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import click
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.cli.api_client import api_client, list_known, object_options
from tdcs.cli.console import Console
from tdcs.cli.explain.explained_dataset import explain_dataset
from tdcs.cli.explain.explained_job import JobReport, JobWorld, explain
from tdcs.cli.explain.explained_pod import PodReport, PodWorld, datasets_to_read, explain_pod
from tdcs.cli.explain.explained_turn import asked_now, is_asked
from tdcs.cli.explain.operator_settings import read_settings
from tdcs.cli.explain.planned_world import operator_namespace
from tdcs.cli.explain.pod_place import PodPlace
from tdcs.cli.explain.read_cluster import read_world
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError, KubeError
from tdcs.kube.events import utc_now
from tdcs.model.humanize import explain_invalid, human
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NODES, PODS, TRAINING_JOBS, Resource

Answer = TypeVar("Answer")
_Explained: TypeAlias = JobReport | PodReport


@click.group(name="explain")
def command() -> None:
    """Explain why something is as it is."""


@command.command(name="job")
@object_options("job")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def job(
    *, name: str, namespace: str | None, context: str | None, kubeconfig: Path | None, as_json: bool
) -> None:
    """Say why TrainingJob NAME waits, or why each of its pods is where it is."""
    report = _answered(_read, kubeconfig=kubeconfig, context=context, name=name, namespace=namespace)
    _print(report, show, as_json=as_json)


@command.command(name="pod")
@object_options("pod")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def pod(
    *, name: str, namespace: str | None, context: str | None, kubeconfig: Path | None, as_json: bool
) -> None:
    """Say why pod NAME is where it is, whoever made it."""
    report = _answered(_read_pod, kubeconfig=kubeconfig, context=context, name=name, namespace=namespace)
    _print(report, show_pod, as_json=as_json)


def _print(report: _Explained, show_report: Callable[..., None], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report)))
    else:
        show_report(report, console=Console())


async def _read_pod(api: KubeApi, name: str, namespace: str) -> PodReport:
    pod = await existing(api, PODS, kind="pod", name=name, namespace=namespace)
    datasets = {}
    for dataset in datasets_to_read(pod):
        its_namespace, _, short = dataset.partition("/")
        obj = await api.get(DATASETS, name=short, namespace=its_namespace)
        if obj is not None:
            datasets[dataset] = obj
    world = PodWorld(pod=pod, datasets=datasets, nodes=await _all(api, NODES), pods=await _all(api, PODS))
    where = operator_namespace(await _all(api, CACHE_CLUSTERS) or ())
    if (settings := (await read_settings(api, namespace=where)).settings) is not None:
        world = dataclasses.replace(world, topology_labels=settings.topology_labels)
    return explain_pod(world)


def show_pod(report: PodReport, *, console: Console) -> None:
    console.print(f"[bold]Pod {escape(report.pod)}[/bold] {escape(report.place.sentence)}", soft_wrap=True)
    console.print(escape(report.headline), soft_wrap=True)
    if report.near:
        console.print(escape(report.near), soft_wrap=True)
    if report.datasets:
        console.print("\n[bold]Its data[/bold]")
        for line in report.datasets:
            console.print(f"  {escape(line)}", soft_wrap=True)
    _alternatives([report.place], console=console)


@command.command(name="dataset")
@object_options("Dataset")
def dataset(*, name: str, namespace: str | None, context: str | None, kubeconfig: Path | None) -> None:
    """Say what of Dataset NAME is cached and why, who uses it, and when it leaves."""
    lines = _answered(_read_dataset, kubeconfig=kubeconfig, context=context, name=name, namespace=namespace)
    console = Console()
    for line in lines:
        console.print(escape(line), soft_wrap=True)


async def _read_dataset(api: KubeApi, name: str, namespace: str) -> list[str]:
    obj = await existing(api, DATASETS, kind="Dataset", name=name, namespace=namespace)
    jobs, now = (await api.list(TRAINING_JOBS, namespace=namespace)).items, utc_now()
    try:
        dataset = Dataset.model_validate(obj)
    except ValidationError as error:
        raise click.ClickException(f"Dataset {namespace}/{name}: {explain_invalid(error)}") from error
    return explain_dataset(
        namespace=namespace,
        name=name,
        dataset=dataset,
        jobs=jobs,
        pods=await _all(api, PODS, namespace=namespace),
        created=str(obj["metadata"].get("creationTimestamp", now)),
        now=now,
    )


def show(report: JobReport, *, console: Console) -> None:
    console.print(f"[bold]TrainingJob {escape(report.job)}[/bold]: {escape(report.state)}")
    console.print(escape(report.headline), soft_wrap=True)
    if report.datasets:
        console.print("\n[bold]Its data[/bold]")
        for line in report.datasets:
            console.print(f"  {escape(line)}", soft_wrap=True)
    if report.pods:
        console.print("\n[bold]Its pods[/bold]")
        for pod, sentence in _sentences(report):
            console.print(f"  {escape(pod)} {escape(sentence)}", soft_wrap=True)
        _alternatives(report.pods, console=console)
    if report.remarks:
        console.print()
        for remark in report.remarks:
            console.print(escape(remark), soft_wrap=True)


def _sentences(report: JobReport) -> list[tuple[str, str]]:
    """What is said of each pod. Pods often wait for the same, which the job says, too: that is said once."""
    first: dict[str, str] = {}
    sentences = []
    for pod in report.pods:
        reason = pod.sentence.removeprefix("waits: ")
        if reason == pod.sentence:
            sentence = pod.sentence
        elif reason in report.headline or reason.partition(": ")[2] in report.headline:
            sentence = "waits for that"
        else:
            first_pod = first.setdefault(reason, pod.pod)
            sentence = pod.sentence if first_pod == pod.pod else f"waits for the same as {first_pod}"
        sentences.append((pod.pod, sentence))
    return sentences


def _alternatives(pods: Sequence[PodPlace], *, console: Console) -> None:
    """One table for all pods: they mostly have the same alternatives."""
    rows = {
        (alternative.node, alternative.score, human(alternative.bytes), alternative.why_not)
        for pod in pods
        for alternative in pod.alternatives
    }
    if not rows:
        return
    table = Table(
        "node",
        "score",
        "holds",
        "why a pod is not there",
        title="Other nodes with data",
        title_justify="left",
    )
    for node, score, held, why in sorted(rows, key=lambda row: (-row[1], row[0], row[3])):
        table.add_row(escape(node), str(score), held, escape(why))
    console.print()
    console.print(table)


async def _read(api: KubeApi, name: str, namespace: str) -> JobReport:
    try:
        return explain(await _world(api, name=name, namespace=namespace))
    except ValidationError as error:
        raise click.ClickException(f"TrainingJob {namespace}/{name}: {explain_invalid(error)}") from error


async def _world(api: KubeApi, *, name: str, namespace: str) -> JobWorld:
    job = await existing(api, TRAINING_JOBS, kind="TrainingJob", name=name, namespace=namespace)
    uses = [use["name"] for use in (job.get("spec") or {}).get("datasets") or ()]
    datasets = {use: await api.get(DATASETS, name=use, namespace=namespace) for use in uses}
    own_pods: list[Object] | None = None
    with contextlib.suppress(ForbiddenError):
        labels = f"{names.LABEL_TRAINING_JOB}={name}"
        own_pods = (await api.list(PODS, namespace=namespace, labels=labels)).items
    return JobWorld(
        job=job,
        datasets={use: dataset for use, dataset in datasets.items() if dataset is not None},
        own_pods=own_pods or (),
        sees_pods=own_pods is not None,
        nodes=await _all(api, NODES),
        pods=await _all(api, PODS),
        turn=asked_now(await read_world(api, job)) if is_asked(job) else None,
    )


def _answered(
    read: Callable[[KubeApi, str, str], Awaitable[Answer]],
    *,
    kubeconfig: Path | None,
    context: str | None,
    name: str,
    namespace: str | None,
) -> Answer:
    """What a reader makes of the object of this name, in this namespace or the current one of the context."""

    async def connected() -> Answer:
        async with api_client(kubeconfig=kubeconfig, context=context) as api:
            return await read(api, name, namespace or api.default_namespace or "default")

    try:
        return asyncio.run(connected())
    except KubeError as error:
        raise click.ClickException(str(error)) from error


async def existing(api: KubeApi, resource: Resource, *, kind: str, name: str, namespace: str) -> Object:
    """The object of this name.

    Raises:
        click.ClickException: there is none, or the cluster does not know its kind.
    """
    obj = await api.get(resource, name=name, namespace=namespace)
    if obj is None:
        if resource is not PODS:
            with contextlib.suppress(ForbiddenError):
                # The same answer, 404, comes from a cluster without TDCS.
                await list_known(api, resource, namespace=namespace)
        raise click.ClickException(
            f"there is no {kind} {name} in namespace {namespace}; "
            f"kubectl get {resource.plural} -A lists all, -n NAMESPACE chooses another namespace"
        )
    return obj


async def _all(api: KubeApi, resource: Resource, *, namespace: str | None = None) -> list[Object] | None:
    """The objects of a kind, of all namespaces or of one, or None when the user may not list them."""
    try:
        return (await api.list(resource, namespace=namespace)).items
    except ForbiddenError:
        return None
