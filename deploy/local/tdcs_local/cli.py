"""``python -m tdcs_local``: the commands, and how a failure is shown."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tdcs_local import lifecycle, preflight, programs, recording
from tdcs_local.containers import compile_environment, torch_packages, torch_root
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, images, release
from tdcs_local.packaging.command import last_release_command, package, sbom
from tdcs_local.paths import CHECKOUT
from tdcs_local.progress import Reporter
from tdcs_local.store.commands import store
from tdcs_local.updates.command import update


class _Commands(click.Group):
    """Shows a :class:`LocalError` as text, with exit code 1, instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LocalError as error:
            click.echo(f"\nerror: {error}", err=True)
            sys.exit(1)


@click.group(cls=_Commands)
def main() -> None:
    """The local cluster: its programs, images and lifecycle."""


@main.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice(sorted(programs.PROGRAMS)))
def product(names: tuple[str, ...]) -> None:
    """Build programs that are not in the cache yet and print the folder of each."""
    reporter = Reporter()
    folders: list[Path] = [programs.ensure(name, reporter=reporter) for name in names]
    for folder in folders:
        click.echo(folder)


@main.command()
def up() -> None:
    """Bring the cluster up: build, start and repair what is missing."""
    lifecycle.up(reporter=Reporter())


@main.command()
@click.option("--force", is_flag=True, help="Also when another checkout made the cluster.")
def down(force: bool) -> None:
    """Remove the cluster and what was started for it."""
    lifecycle.down(reporter=Reporter(), force=force)


@main.command(name="images")
@click.argument("names", nargs=-1, type=click.Choice(sorted(images.SPECS)))
def images_command(names: tuple[str, ...]) -> None:
    """Build the project's images (all, or those named) and load them into the cluster."""
    for name, tag in images.ensure(names or list(images.SPECS), reporter=Reporter()).items():
        click.echo(f"tdcs/{name}:{tag}")


@main.command(name="recording")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=CHECKOUT / "docs" / "images" / "first-job.svg",
    help="The picture.",
)
def recording_command(output: Path) -> None:
    """Record a terminal in which a Dataset and a job are applied, on the local cluster after the demo."""
    recording.record(output=output.absolute(), reporter=Reporter())
    click.echo(output)


@main.command(name="torch", context_settings={"ignore_unknown_options": True})
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    required=True,
    help="A folder that the program may write to, as /results.",
)
@click.option("--data", multiple=True, metavar="NAME=FOLDER", help="A folder to read, as /data/NAME.")
@click.option("--environment", multiple=True, metavar="NAME=VALUE", help="A variable of the program.")
@click.option("--network", is_flag=True, help="Leave the program this process's network interfaces.")
@click.option(
    "--packages", is_flag=True, help="With the packages of locks/transformers.txt, if they can be had."
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
def torch_command(
    *,
    results: Path,
    data: tuple[str, ...],
    environment: tuple[str, ...],
    network: bool,
    packages: bool,
    words: tuple[str, ...],
) -> None:
    """Run a program inside the root of the image train-pytorch, with this checkout at /checkout; as root."""
    reporter = Reporter()
    torch_root.require(reporter=reporter)
    run = torch_root.Run(
        command=words,
        results=results.resolve(),
        data={name: Path(folder).resolve() for name, folder in _pairs(data, "--data").items()},
        environment=_pairs(environment, "--environment"),
        network=network,
        packages=torch_packages.ensure(reporter=reporter) if packages else None,
    )
    command = torch_root.arguments(run, root=torch_root.ensure_folder(reporter=reporter))
    os.execvp(command[0], command)  # noqa: S606  signals of the caller reach the program


@main.command(name="compile-python", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
def compile_command(words: tuple[str, ...]) -> None:
    """Run Python in the environment with TVM, with this checkout's packages."""
    python = compile_environment.ensure(reporter=Reporter())
    os.execve(python, [str(python), *words], compile_environment.environment())  # noqa: S606  as above


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """The values of an option that is given as NAME=VALUE."""
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint=option)
        values[name] = value
    return values


@main.command()
@click.argument("name", type=click.Choice(sorted(images.SPECS)))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def context(name: str, folder: Path) -> None:
    """Write the docker build context of an image into an empty FOLDER, for building it with any docker.

    \b
    Then, with Debian's own base image, for a registry of yours:
        docker build --tag REGISTRY/NAME:TAG FOLDER
    """
    if folder.exists() and any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty", param_hint="FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    images.write_context(images.spec_of(name), folder=folder, reporter=Reporter())
    click.echo(folder)


@main.command()
@click.option("--quiet", is_flag=True, help="Say nothing; answer by the exit status only.")
def status(quiet: bool) -> None:
    """Say what of the cluster is there.

    Exit status: 0 if this checkout's cluster is up, 3 if it has one that is not (stopped, unfinished or sick;
    while no engine answers: its kubeconfig is there). If it has none: 1 with --quiet, else 0, for that is said.
    """
    lines, code = lifecycle.status()
    if not quiet:
        for line in lines:
            click.echo(line)
    sys.exit(0 if code == lifecycle.NONE and not quiet else code)


@main.command()
def doctor() -> None:
    """Check this machine for what the cluster needs; changes nothing."""
    facts = preflight.facts()
    for line in preflight.described(facts):
        click.echo(line)
    problems = preflight.problems(facts)
    for problem in problems:
        click.echo(str(problem))
    if not problems:
        click.echo("this machine has what the local cluster needs")
    sys.exit(1 if any(problem.blocking for problem in problems) else 0)


@main.command()
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A chart value, as for helm.")
@click.option(
    "--values",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file of chart values, after those that TDCS_HELM_VALUES names (separated by colons).",
)
def install(settings: tuple[str, ...], values: tuple[Path, ...]) -> None:
    """Build the images, then install or upgrade TDCS on the cluster by its chart."""
    single = _pairs(settings, "--set")
    reporter = Reporter()
    kubectl = cluster.access()
    tags = images.ensure(release.IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings=single, values=values)


@main.command()
def uninstall() -> None:
    """Remove TDCS from the cluster; its custom resource definitions stay, as with any chart."""
    release.uninstall(reporter=Reporter(), kubectl=cluster.access())


@main.command()
def demo() -> None:
    """From nothing to a training job placed by its data; prints what happened."""
    from tdcs_local import demo as demonstration

    reporter, began = Reporter(), time.monotonic()
    demonstration.introduce(reporter=reporter)
    lifecycle.up(reporter=reporter)
    demonstration.run(reporter=reporter, began=began)


_RESULTS = click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The JSON file of the results.",
)


@main.command()
@_RESULTS
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Of each configuration; tables have medians.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=4),
    multiple=True,
    default=(1, 2, 4),
    show_default=True,
    help="Jobs at the same time; may be given several times.",
)
def experiment(results: Path, repetitions: int, jobs: tuple[int, ...]) -> None:
    """Read a bucket directly, through stock Alluxio and with TDCS, and compare with what was predicted."""
    from tdcs_local.experiment import page, report, runner
    from tdcs_local.experiment.analysis import all_measured, rows
    from tdcs_local.experiment.plan import Plan

    reporter = Reporter()
    lifecycle.up(reporter=reporter)
    results.parent.mkdir(parents=True, exist_ok=True)
    document = runner.run(Plan(jobs=jobs, repetitions=repetitions), results=results, reporter=reporter)
    report.show(rows(all_measured(document)))
    for ending in (".svg", ".png"):
        page.draw(document, results.with_suffix(ending))
    click.echo(f"{page.bar_lines(document)}\nresults and pictures: {results.parent}")


@main.command()
@_RESULTS
@click.option(
    "--predict-again",
    is_flag=True,
    help="Replace the predictions of before the run by those of today; the page says so.",
)
def experiment_page(results: Path, predict_again: bool) -> None:
    """Make docs/experiment.md of the results of an experiment."""
    from tdcs_local.experiment import page

    for path in page.write(results, predict_again=predict_again):
        click.echo(path.relative_to(CHECKOUT))


main.add_command(package)
main.add_command(sbom)
main.add_command(last_release_command)
main.add_command(store)
main.add_command(update)
