"""`tdcs status`: cache clusters, datasets, preloads and jobs at a glance. Reads the API server and nothing else."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from rich.console import RenderableType
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from tdcs.api import names
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.api.trainingjob import TrainingJob
from tdcs.cli.api_client import api_client, connection_options
from tdcs.cli.console import Console
from tdcs.cli.explain import dataset_use
from tdcs.cli.explain.listed_objects import ListedObjects, check_namespace, read_world, used_namespaces
from tdcs.cli.explain.operator_lease import silence
from tdcs.cli.problems import once, problems
from tdcs.decide.job.job_phase import deciding_role, worker_0_decides
from tdcs.kube.errors import KubeError
from tdcs.kube.events import utc_now
from tdcs.model.humanize import human
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS, Resource

_COLOURS: Final = {
    "Ready": "green",
    "Complete": "green",
    "Succeeded": "green",
    "Running": "green",
    "Degraded": "yellow",
    "Suspended": "yellow",
    "Evicted": "yellow",
    "Draining": "yellow",
    "Failed": "red",
    "Lost": "red",
    "NotReady": "red",
}
_BAR: Final = 16
_BARS: Final = " "
_NARROW: Final = 110
"""Terminals with fewer columns are shown no bars."""

_PIPED: Final = 180

_NAMED: Final = 5
"""So many namespaces are named."""


@click.command(name="status")
@click.option("-n", "--namespace", help="The namespace; default: that of the current context.")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
@connection_options
def command(
    *, namespace: str | None, all_namespaces: bool, context: str | None, kubeconfig: Path | None
) -> None:
    """Show cache clusters, datasets, preloads and training jobs, and what is wrong with them."""
    if namespace and all_namespaces:
        raise click.UsageError("--namespace and --all-namespaces exclude each other")
    try:
        world, where, elsewhere = asyncio.run(
            _read(kubeconfig, context=context, namespace=namespace, everywhere=all_namespaces)
        )
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    # Not a terminal: whoever reads it later has room.
    console = Console() if sys.stdout.isatty() else Console(width=_PIPED)
    show(world, namespace=where, console=console)
    if elsewhere is not None:
        console.print(escape(_look_elsewhere(elsewhere)), soft_wrap=True)


def show(world: ListedObjects, *, namespace: str | None, console: Console, now: str = "") -> None:
    """Print everything, with one line for a kind that has no objects or may not be listed."""
    everywhere, now = namespace is None, now or utc_now()
    if silent := silence(world.lease, now=now):
        console.print(f"[red]![/red] Operator: {escape(silent)}\n", soft_wrap=True)
    place = "any namespace" if everywhere else f"namespace {namespace}"

    def nothing_of(resource: Resource, otherwise: str) -> str:
        return world.limits.get(resource.plural, otherwise)

    sections = (
        (
            "Cache clusters",
            clusters(world.clusters),
            nothing_of(CACHE_CLUSTERS, "no CacheCluster: install the chart, or create one"),
        ),
        (
            "Datasets",
            datasets(world.datasets, everywhere=everywhere),
            nothing_of(DATASETS, f"no Dataset in {place}"),
        ),
        ("Who has the cache", uses(world.datasets, everywhere=everywhere, now=now), ""),
        (
            "Preloads",
            preloads(world.preloads, everywhere=everywhere),
            nothing_of(PRELOADS, f"no Preload in {place}"),
        ),
        (
            "Training jobs",
            jobs(world.jobs, everywhere=everywhere),
            nothing_of(TRAINING_JOBS, f"no TrainingJob in {place}"),
        ),
    )
    for title, table, nothing in sections:
        if not table.row_count and not nothing:
            continue
        console.print(f"[bold]{title}[/bold]")
        if console.width < _NARROW:
            table.columns = [column for column in table.columns if column.header != _BARS]
        console.print(table if table.row_count else f"  [dim]{escape(nothing)}[/dim]")
        console.print()
    for line in troubles(world, now=now):
        console.print(line, soft_wrap=True)


def clusters(objects: Sequence[Object]) -> Table:
    """One row a cache cluster, and one for each of its workers that does not serve."""
    table = _table("Name", "Engine", "State", "Reason", "Workers", "Used", _BARS)
    for obj in objects:
        status = _status(obj)
        ready = _condition(obj, names.READY)
        is_ready = ready.get("status") == "True"
        used, capacity = status.get("usedBytes", 0), status.get("capacityBytes", 0)
        table.add_row(
            escape(_name(obj)),
            escape(str((obj.get("spec") or {}).get("engine", "Alluxio"))),
            _coloured("Ready" if is_ready else "NotReady"),
            escape("" if is_ready else str(ready.get("reason", ""))),
            f"{status.get('readyReplicas', 0)} of {status.get('desiredReplicas', 0)}",
            f"{human(used)} of {human(capacity)}",
            _bar(used, capacity),
        )
        for worker in status.get("workers") or ():
            if worker.get("state") != "Ready":
                bytes_to_move = worker.get("lastCopyBytes")
                moving = f"{human(bytes_to_move)} to move" if bytes_to_move else ""
                table.add_row(
                    f"  {escape(worker['node'])}", "", _coloured(worker.get("state", "?")), "", "", moving, ""
                )
    return table


def datasets(objects: Sequence[Object], *, everywhere: bool) -> Table:
    table = _table("Name", "State", "Reason", "Loaded", _BARS, "Rate", "Size", "Files", "Nodes")
    for obj in objects:
        status = _status(obj)
        nodes = {
            node["name"]
            for copy in status.get("copies") or ()
            for node in copy.get("nodes") or ()
            if node.get("bytes")
        }
        wanted_bytes = status.get("wantedBytes", 0)
        table.add_row(
            escape(_title(obj, everywhere)),
            _coloured(status.get("state", "Pending")),
            escape(str(status.get("reason") or "")),
            status.get("loaded") or (f"{status['cached']} cached" if status.get("cached") else ""),
            _bar(status.get("loadedBytes", 0), wanted_bytes) if wanted_bytes else "",
            status.get("rate", ""),
            human(status["totalBytes"]) if status.get("totalBytes") else "",
            str(status.get("totalFiles") or ""),
            escape(", ".join(sorted(nodes)[:4]) + (" …" if len(nodes) > 4 else "")),
        )
    return table


def uses(objects: Sequence[Object], *, everywhere: bool, now: str) -> Table:
    """One row a dataset that is granted or has something of the cache, or that jobs ask for: what it may have, who
    reads it, and when it leaves. One that cannot be understood has none."""
    table = _table("Name", "May take", "Copies", "Jobs", "Leaves the cache")
    for obj in objects:
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError:
            continue  # its state says so
        status, created = (
            dataset.status or DatasetStatus(),
            str(obj["metadata"].get("creationTimestamp", now)),
        )
        cells = (
            dataset_use.granted(status),
            dataset_use.copies(status),
            dataset_use.jobs(dataset, status),
            dataset_use.leaves(dataset, status, created=created, now=now),
        )
        granted, _, jobs_text, _ = cells
        if granted or jobs_text or dataset_use.is_held(status):
            table.add_row(escape(_title(obj, everywhere)), *map(escape, cells))
    return table


def preloads(objects: Sequence[Object], *, everywhere: bool) -> Table:
    table = _table("Name", "Dataset", "State", "Reason", "Done", _BARS, "Rate", "Bytes", "Files")
    for obj in objects:
        status = _status(obj)
        total, complete = status.get("bytesTotal", 0), _condition(obj, names.COMPLETE)
        table.add_row(
            escape(_title(obj, everywhere)),
            escape(names.dataset_of(obj)),
            _coloured(status.get("state", "Pending")),
            escape("" if complete.get("status") == "True" else str(complete.get("reason", ""))),
            status.get("progress", ""),
            _bar(_shown_bytes(status, total), total) if total else "",
            status.get("rate", ""),
            f"{human(status.get('bytesDone', 0))} of {human(total)}" if total else "",
            f"{status.get('filesDone', 0)} of {status.get('filesTotal', 0)}" if total else "",
        )
    return table


def _shown_bytes(status: Mapping[str, Any], total: int) -> int:
    """How far the bar of a Preload goes: to its end only when it is complete."""
    done = int(status.get("bytesDone", 0))
    return min(done, total * 9 // 10) if status.get("state") == "Failed" else done


def jobs(objects: Sequence[Object], *, everywhere: bool) -> Table:
    table = _table("Name", "State", "Reason", "Workers", "Locality", "Datasets")
    for obj in objects:
        status, spec = _status(obj), obj.get("spec", {})
        table.add_row(
            escape(_title(obj, everywhere)),
            _coloured(status.get("state", "Pending")),
            escape(str(status.get("reason", ""))),
            pods_in_words(obj),
            str(status.get("localityPercent") or ""),
            escape(", ".join(str(use.get("name", "")) for use in spec.get("datasets") or ())),
        )
    return table


def pods_in_words(job: Object) -> str:
    """Workers that are ready; of a job that has ended, as none is ready any more, the pods by which it ended that
    succeeded: where these are a chief, a launcher or worker 0, the other pods were ended with them."""
    status, workers = _status(job), job.get("spec", {}).get("workers", 1)
    counts = {
        status_of_role.get("name"): status_of_role for status_of_role in status.get("replicaStatuses") or ()
    }
    state = status.get("state")
    if state not in {"Succeeded", "Failed"}:
        return f"{counts.get('Worker', {}).get('ready', 0)} of {workers}"
    try:
        spec = TrainingJob.model_validate(job).spec
    except ValidationError:
        spec = None
    role = deciding_role(spec) if spec is not None else "Worker"
    done = counts.get(role, {}).get("succeeded", 0)
    if role != "Worker":
        return f"{role.lower()} succeeded" if done else f"{role.lower()} did not succeed"
    if state == "Succeeded" and done < workers and spec is not None and worker_0_decides(spec):
        return "worker 0 succeeded"
    return f"{done} of {workers} succeeded"


def troubles(world: ListedObjects, *, now: str) -> Iterator[str]:
    """What needs a person: what is wrong, and what to do, each once; `now`: the time."""
    objects = {
        "CacheCluster": world.clusters,
        "Dataset": world.datasets,
        "Preload": world.preloads,
        "TrainingJob": world.jobs,
    }
    for line in once(problems(objects, now=now)):
        yield f"[red]![/red] {escape(line)}"


async def _read(
    kubeconfig: Path | None, *, context: str | None, namespace: str | None, everywhere: bool
) -> tuple[ListedObjects, str | None, Sequence[str] | None]:
    """What there is, the namespace that was looked into (None: all), and, when that has nothing, those that have."""
    async with api_client(kubeconfig=kubeconfig, context=context) as api:
        where = None if everywhere else namespace or api.default_namespace or "default"
        world = await read_world(api, namespace=where)
        if where is not None and not (world.datasets or world.preloads or world.jobs):
            await check_namespace(api, where)
            return world, where, await used_namespaces(api)
    return world, where, None


def _look_elsewhere(namespaces: Sequence[str]) -> str:
    """Where else to look; without namespaces none has anything, or the user may not list them."""
    if not namespaces:
        return "-n NAMESPACE looks into another namespace, -A into all."
    named = ", ".join(namespaces[:_NAMED]) + (
        f" and {len(namespaces) - _NAMED} more" if len(namespaces) > _NAMED else ""
    )
    return f"There is something in {named}: -n NAMESPACE looks into one of them, -A into all."


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _bar(done: int, total: int) -> RenderableType:
    return ProgressBar(total=max(total, 1), completed=done, width=_BAR)


def _coloured(state: str) -> str:
    return f"[{_COLOURS.get(state, 'cyan')}]{escape(state)}[/]"


def _status(obj: Object) -> Mapping[str, Any]:
    return obj.get("status") or {}


def _condition(obj: Object, kind: str) -> Mapping[str, Any]:
    conditions = _status(obj).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _title(obj: Object, everywhere: bool) -> str:
    namespace = obj["metadata"].get("namespace")
    return f"{namespace}/{_name(obj)}" if everywhere and namespace else _name(obj)
