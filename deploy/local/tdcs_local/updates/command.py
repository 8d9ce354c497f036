"""`python -m tdcs_local update`: newer versions into the files that pin them, and a report."""

from collections.abc import Callable, Mapping

import click

from tdcs_local import host, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT, LOCAL, log_file
from tdcs_local.progress import Reporter
from tdcs_local.updates.go_modules import update_module
from tdcs_local.updates.maven_poms import update_pom
from tdcs_local.updates.npm_packages import update_packages
from tdcs_local.updates.python_locks import update_locks
from tdcs_local.updates.update import Update, report

PINS = (
    "locks",
    "deploy/local/go",
    "deploy/local/npm",
    "deploy/local/alluxio/pom.xml",
    "deploy/local/alluxio-job/pom.xml",
)
"""Where versions are pinned."""


def _python(reporter: Reporter) -> list[Update]:
    return update_locks(CHECKOUT, log=log_file("update-python"))


def _go(reporter: Reporter) -> list[Update]:
    host.require_programs("go", reporter=reporter)
    folders = sorted(path.parent for path in (LOCAL / "go").glob("*/go.mod"))
    return [update for folder in folders for update in update_module(folder, log=log_file("update-go"))]


def _npm(reporter: Reporter) -> list[Update]:
    host.require_programs("npm", reporter=reporter)
    folders = sorted(path.parent for path in (LOCAL / "npm").glob("*/package.json"))
    return [update for folder in folders for update in update_packages(folder, log=log_file("update-npm"))]


def _maven(reporter: Reporter) -> list[Update]:
    host.require_programs("mvn", "java", reporter=reporter)
    poms = sorted(LOCAL.glob("*/pom.xml"))
    return [update for pom in poms for update in update_pom(pom, log=log_file("update-maven"))]


KINDS: Mapping[str, Callable[[Reporter], list[Update]]] = {
    "python": _python,
    "go": _go,
    "npm": _npm,
    "maven": _maven,
}


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(sorted(KINDS)))
def update(kinds: tuple[str, ...]) -> None:
    """Take newer versions of what is pinned, of all KINDS or of those that are named, and say what may break."""
    changed = shell.capture(["git", "status", "--porcelain", "--", *PINS], cwd=CHECKOUT)
    if changed:
        raise LocalError(
            what="pinned versions have changes that are not committed",
            why=changed,
            remedy="commit them, or take them back with `git checkout`; then `git diff` shows the update alone",
        )
    reporter = Reporter()
    for kind in kinds or KINDS:
        with reporter.step(f"updating {kind}"):
            updates = KINDS[kind](reporter)
        click.echo(f"\n{kind}\n{report(updates)}")
    click.echo(
        "\nread `git diff`, run `make test`, and commit each kind alone; `git checkout` takes the update back"
    )
