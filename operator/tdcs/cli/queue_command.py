"""`tdcs queue`: pause jobs or the queue of a namespace, and change the order of its jobs, with the user's rights."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from tdcs.api import names
from tdcs.api.trainingjob import MOST_RANK
from tdcs.cli.api_client import api_client, connection_options, list_known
from tdcs.control.job_index import has_ended
from tdcs.decide.queue.job_order import rank_of_move
from tdcs.decide.queue.queue_stop import StopPolicy
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import NAMESPACES, TRAINING_JOBS

WHICH = "name the jobs, or give --all for the queue of the namespace"


@click.group(name="queue")
def command() -> None:
    """Pause and resume the queue of TrainingJobs, or change its order."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    namespace = click.option("-n", "--namespace", help="Default: that of the current context.")
    return namespace(connection_options(function))


@command.command(name="pause")
@click.argument("jobs", metavar="[NAME]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="The namespace's queue: no job of it starts.")
@click.option("--drain", is_flag=True, help="With --all: jobs that run are suspended, too, and queue again.")
@_options
def pause(*, jobs: tuple[str, ...], everything: bool, drain: bool, **connection: Any) -> None:
    """Suspend the TrainingJobs NAME, or have no further job of a namespace start (--all)."""
    if bool(jobs) == everything:
        raise click.UsageError(WHICH)
    if drain and not everything:
        raise click.UsageError("--drain is for --all: a job that is paused by its name is suspended anyway")
    policy = StopPolicy.DRAIN if drain else StopPolicy.HOLD
    _act(
        lambda api, namespace: (
            stop_queue(api, namespace=namespace, policy=policy)
            if everything
            else suspend(api, namespace=namespace, jobs=jobs, suspended=True)
        ),
        **connection,
    )


@command.command(name="resume")
@click.argument("jobs", metavar="[NAME]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="The namespace's queue.")
@_options
def resume(*, jobs: tuple[str, ...], everything: bool, **connection: Any) -> None:
    """Let the TrainingJobs NAME go on, or the jobs of a namespace start in their turn (--all)."""
    if bool(jobs) == everything:
        raise click.UsageError(WHICH)
    _act(
        lambda api, namespace: (
            stop_queue(api, namespace=namespace, policy=StopPolicy.NONE)
            if everything
            else suspend(api, namespace=namespace, jobs=jobs, suspended=False)
        ),
        **connection,
    )


@command.command(name="move")
@click.argument("name")
@click.option("--first/--last", required=True, help="Before, or behind, the other jobs of the namespace.")
@_options
def move(*, name: str, first: bool, **connection: Any) -> None:
    """Put TrainingJob NAME before or behind the waiting jobs of its namespace that have the same priority."""
    _act(lambda api, namespace: move_job(api, namespace=namespace, name=name, first=first), **connection)


def _act(
    act: Callable[[KubeApi, str], Awaitable[list[str]]],
    *,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    async def connected() -> list[str]:
        async with api_client(kubeconfig=kubeconfig, context=context) as api:
            return await act(api, namespace or api.default_namespace or "default")

    try:
        for line in asyncio.run(connected()):
            click.echo(line)
    except KubeError as error:
        raise click.ClickException(str(error)) from error


async def stop_queue(api: KubeApi, *, namespace: str, policy: StopPolicy) -> list[str]:
    """Write the annotation of a namespace; gives what to say.

    Raises:
        click.ClickException: there is no such namespace.
        KubeError: the user may not change it.
    """
    word = None if policy is StopPolicy.NONE else policy.value
    annotations = {names.ANNOTATION_QUEUE_STOP: word}
    try:
        await api.merge(NAMESPACES, name=namespace, patch={"metadata": {"annotations": annotations}})
    except NotFoundError as error:
        raise click.ClickException(f"there is no namespace {namespace}; -n chooses another one") from error
    effect = {
        StopPolicy.NONE: "jobs start in their turn",
        StopPolicy.HOLD: "no job starts; those that run go on (--drain suspends them, too)",
        StopPolicy.DRAIN: "no job starts, and those that run are suspended and queue again",
    }
    undo = (
        "" if policy is StopPolicy.NONE else f"; tdcs queue resume --all -n {namespace} lets jobs start again"
    )
    lines = [f"namespace {namespace}: {effect[policy]}{undo}"]
    queued = [job for job in await _waiting(api, namespace) if names.KUEUE_QUEUE in _labels(job)]
    if queued and policy is not StopPolicy.NONE:
        lines.append(
            f"{len(queued)} of its jobs have the label of a queue of Kueue, which decides about them where the "
            "operator follows it: kubectl kueue stop localqueue NAME pauses such a queue"
        )
    return lines


async def suspend(api: KubeApi, *, namespace: str, jobs: tuple[str, ...], suspended: bool) -> list[str]:
    """Set runPolicy.suspend of jobs; gives what to say.

    Raises:
        click.ClickException: one of them does not exist.
        KubeError: the user may not change one.
    """
    lines = []
    for name in jobs:
        await _existing(api, namespace=namespace, name=name)
        patch = {"spec": {"runPolicy": {"suspend": suspended}}}
        await api.merge(TRAINING_JOBS, name=name, namespace=namespace, patch=patch)
        effect = (
            f"is suspended; tdcs queue resume {name} -n {namespace} lets it queue again"
            if suspended
            else "queues again"
        )
        lines.append(f"TrainingJob {namespace}/{name} {effect}")
    return lines


async def move_job(api: KubeApi, *, namespace: str, name: str, first: bool) -> list[str]:
    """Set the rank of a job so that it is first or last of its namespace; gives what to say.

    Raises:
        click.ClickException: there is no such job, or it does not wait in this queue.
        KubeError: the user may not change it.
    """
    job = await _existing(api, namespace=namespace, name=name)
    state = (job.get("status") or {}).get("state", "Waiting")
    if state not in {"Waiting", "Queued", "Suspended"}:
        raise click.ClickException(f"TrainingJob {namespace}/{name} is {state}: it waits for no turn")
    if queue := _kueue_queue(job):
        raise click.ClickException(
            f"TrainingJob {namespace}/{name} waits in LocalQueue {queue} of Kueue, which orders its jobs by priority, "
            f"then by age; no rank counts there. Give it another priority: kubectl label trainingjob {name} -n "
            f"{namespace} --overwrite kueue.x-k8s.io/priority-class=CLASS (kubectl get workloadpriorityclasses)"
        )
    other_jobs = [
        job
        for job in await _waiting(api, namespace)
        if job["metadata"]["name"] != name and not _kueue_queue(job)
    ]
    rank = rank_of_move(_rank(job), other_ranks=map(_rank, other_jobs), first=first)
    if abs(rank) > MOST_RANK:
        furthest = max(other_jobs, key=lambda job: abs(_rank(job)))
        found = furthest["metadata"]["name"]
        raise click.ClickException(
            f"TrainingJob {namespace}/{name} cannot have rank {rank}: ranks go from -{MOST_RANK} to {MOST_RANK}, and "
            f"TrainingJob {namespace}/{found} has {_rank(furthest)}. Set its spec.scheduling.rank nearer to 0 first"
        )
    if rank != _rank(job):
        patch = {"spec": {"scheduling": {"rank": rank}}}
        await api.merge(TRAINING_JOBS, name=name, namespace=namespace, patch=patch)
    where = "before" if first else "behind"
    count = f"{len(other_jobs)} other waiting job{'' if len(other_jobs) == 1 else 's'} of its namespace"
    return [f"TrainingJob {namespace}/{name} has rank {rank}: {where} {count}, where these have its priority"]


async def _existing(api: KubeApi, *, namespace: str, name: str) -> Object:
    job = await api.get(TRAINING_JOBS, name=name, namespace=namespace)
    if job is None:
        raise click.ClickException(f"there is no TrainingJob {name} in namespace {namespace}")
    return job


async def _waiting(api: KubeApi, namespace: str) -> list[Object]:
    """The jobs of a namespace that wait to start."""
    return [
        job
        for job in await list_known(api, TRAINING_JOBS, namespace=namespace)
        if not has_ended(job) and not _is_admitted(job)
    ]


def _is_admitted(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == names.ADMITTED and condition.get("status") == "True"
        for condition in conditions
    )


def _kueue_queue(job: Object) -> str:
    """The LocalQueue that decides about a job; empty: the operator's own queue does, whatever label the job has."""
    return str((job.get("status") or {}).get("queueName") or "")


def _labels(job: Object) -> Object:
    return job["metadata"].get("labels") or {}


def _rank(job: Object) -> int:
    return int(((job.get("spec") or {}).get("scheduling") or {}).get("rank") or 0)
