"""`tdcs plan`: what would become of a TrainingJob, before it is applied. Writes nothing without `--apply`."""

import asyncio
import dataclasses
import json
from pathlib import Path

import click
from rich.markup import escape

from tdcs.api import names
from tdcs.api.failures import InputError
from tdcs.cli.api_client import api_client, connection_options
from tdcs.cli.console import Console
from tdcs.cli.explain.read_cluster import read_world
from tdcs.cli.input import inputs_checked
from tdcs.cli.plan.dry_run import check_children, check_job
from tdcs.cli.plan.forecast import Forecast, Speeds
from tdcs.cli.plan.job_file import read_job
from tdcs.cli.plan.outlook import JobPlan, plan
from tdcs.control.dataset.installed_policies import installed_policies
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ConflictError, KubeError
from tdcs.model.humanize import duration, human, times
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import TRAINING_JOBS


@click.command(name="plan")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "-n", "--namespace", help="The job's namespace; default: the file's, else that of the current context."
)
@connection_options
@click.option("--epochs", type=click.IntRange(1), help="Passes over the data; for how long it would run.")
@click.option(
    "--images-per-second-per-gpu", type=float, help="How fast a GPU computes when data never lacks; or:"
)
@click.option("--warm-seconds", type=float, help="The measured time of the whole job with everything cached.")
@click.option(
    "--remote-bytes-per-second",
    help="What the source gives, such as 180M; default: as in the Dataset's last load.",
)
@click.option(
    "--nic-bytes-per-second", help="What a node's link carries, such as 1.25G; default: it limits nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option(
    "--apply",
    "applies",
    is_flag=True,
    help="Create the job as well, with the prediction: its status says in the end how wrong that was.",
)
@inputs_checked
def command(
    *,
    file: Path,
    namespace: str | None,
    context: str | None,
    kubeconfig: Path | None,
    epochs: int | None,
    images_per_second_per_gpu: float | None,
    warm_seconds: float | None,
    remote_bytes_per_second: str | None,
    nic_bytes_per_second: str | None,
    as_json: bool,
    applies: bool,
) -> None:
    """Say what would become of the TrainingJob in FILE (- is standard input) if it were applied now.

    Where its pods would be and what they would wait for, what would leave the cache, and how long it would run.
    """
    speeds = _speeds(
        epochs=epochs,
        images=images_per_second_per_gpu,
        warm=warm_seconds,
        remote=remote_bytes_per_second,
        nic=nic_bytes_per_second,
    )
    job = read_job(path=file)
    try:
        job_plan, created = asyncio.run(
            _planned(
                job,
                speeds=speeds,
                namespace=namespace,
                kubeconfig=kubeconfig,
                context=context,
                applies=applies,
            )
        )
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(job_plan), "created": created}))
    else:
        show(job_plan, created=created, console=Console())


def _speeds(
    *, epochs: int | None, images: float | None, warm: float | None, remote: str | None, nic: str | None
) -> Speeds | None:
    rates = (images, warm, remote, nic)
    if epochs is None:
        if any(rate is not None for rate in rates):
            raise InputError("give --epochs as well: how long the job runs depends on it")
        return None
    if (images is None) == (warm is None):
        raise InputError(
            "give either --images-per-second-per-gpu or --warm-seconds next to --epochs: it says how fast the GPUs are"
        )
    return Speeds(
        epochs=epochs,
        images_per_second_per_gpu=images,
        warm_seconds=warm,
        remote_bytes_per_second=remote,
        nic_bytes_per_second=nic,
    )


async def _planned(
    job: Object,
    *,
    speeds: Speeds | None,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    applies: bool,
) -> tuple[JobPlan, bool]:
    async with api_client(kubeconfig=kubeconfig, context=context) as api:
        own_namespace = job["metadata"].get("namespace")
        if own_namespace and namespace and own_namespace != namespace:
            raise InputError(
                f"the file's namespace is {own_namespace}, and --namespace is {namespace}: leave out one of the two"
            )
        where = own_namespace or namespace or api.default_namespace or "default"
        job = {**job, "metadata": {**job["metadata"], "namespace": where}}
        if await api.get(TRAINING_JOBS, name=job["metadata"]["name"], namespace=where) is not None:
            name = job["metadata"]["name"]
            raise click.ClickException(
                f"TrainingJob {where}/{name} exists already: tdcs explain job {name} -n {where} says how it is; to "
                "plan another one choose another metadata.name"
            )
        tried = [await check_job(api, job), await check_children(api, job)]
        job_plan = plan(await read_world(api, job), speeds=speeds, policies=installed_policies())
        unknown = (*(trial.unknown for trial in tried if trial.unknown), *job_plan.unknown)
        job_plan = dataclasses.replace(job_plan, unknown=unknown)
        if job_plan.starts_now and any(trial.refused for trial in tried):
            job_plan = dataclasses.replace(job_plan, starts_now=None)
        if applies:
            await _create(api, job, job_plan.forecast)
        return job_plan, applies


async def _create(api: KubeApi, job: Object, forecast: Forecast | None) -> None:
    metadata = job["metadata"]
    if forecast is not None:
        predicted = {names.ANNOTATION_PREDICTED: str(max(round(forecast.seconds), 1))}
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **predicted}}
    try:
        await api.create(TRAINING_JOBS, obj={**job, "metadata": metadata})
    except ConflictError as error:
        raise click.ClickException(f"{error}; choose another metadata.name") from error


def show(job_plan: JobPlan, *, created: bool, console: Console) -> None:
    def line(text: str, *, indent: str = "  ") -> None:
        console.print(f"{indent}{escape(text)}", soft_wrap=True, highlight=False)

    def title(text: str) -> None:
        console.print(f"\n[bold]{text}[/bold]")

    start = _say(
        job_plan.starts_now,
        yes="it would start at once",
        no="it would wait",
        unknown="whether it would wait is unknown",
    )
    console.print(f"[bold]TrainingJob {escape(job_plan.job)}[/bold]: {start}", soft_wrap=True)
    for subject, answer in (("its data", job_plan.data), ("its turn", job_plan.turn)):
        line(f"{subject}: {_say(answer.yes, yes='yes', no='no', unknown='unknown')}, {answer.message}")
    if job_plan.datasets:
        title("Its data")
        for line_text in job_plan.datasets:
            line(line_text)
        if job_plan.load_bytes:
            line(f"{human(job_plan.load_bytes)} would be brought into the cache for it")
    if job_plan.pods:
        title("Its pods, as things are now")
        for pod in job_plan.pods:
            line(f"{pod.pod}: {pod.why_not or _where(pod.node, pod.score, pod.alike)}")
    title("What would leave the cache")
    for leaving in job_plan.leaving:
        rest_text = "all of it" if leaving.all else "the rest stays"
        line(f"{' and '.join(leaving.datasets)}: {human(leaving.bytes)}, {rest_text}")
    if not job_plan.leaving_known:
        line("the rest is unknown" if job_plan.leaving else "unknown")
    elif not job_plan.leaving:
        line("nothing")
    if job_plan.forecast is not None:
        title("How long it would run")
        for line_text in _speed(job_plan.forecast):
            line(line_text)
    if job_plan.unknown:
        title("What cannot be said")
        for line_text in job_plan.unknown:
            line(line_text)
    if created:
        console.print()
        line(f"TrainingJob {job_plan.job} was created", indent="")


def _say(answer: bool | None, *, yes: str, no: str, unknown: str) -> str:
    if answer is None:
        return unknown
    return yes if answer else no


def _where(node: str, score: int | None, alike: int) -> str:
    if score is None:
        return f"{node}; it reads no data, any node is as good"
    others_text = f", as {alike - 1} more with room" if alike > 1 else ""
    return f"{node}, score {score} of 10{others_text}"


def _speed(forecast: Forecast) -> list[str]:
    direct, faster = duration(forecast.direct_seconds), times(forecast.direct_seconds / forecast.seconds)
    cold, cached = duration(forecast.cold_seconds), duration(forecast.cached_seconds)
    lines = [
        f"{duration(forecast.seconds)}, {faster} as fast as when it reads its source directly ({direct})",
        f"between {cold} with nothing cached (limited by {forecast.bottleneck}) and {cached} with all that fits",
    ]
    if forecast.load_seconds >= 1:
        lines.append(f"loading what is missing takes {duration(forecast.load_seconds)}")
    return lines + [f"assumed: {assumption}" for assumption in forecast.assumed]
