"""`tdcs migrate`: rewrites files for the present version of the API, with their comments, order and other documents."""

import os
import stat
import sys
import tempfile
from pathlib import Path

import click

from tdcs.api import names
from tdcs.api.migration.objects import MigrationError
from tdcs.api.migration.text import migrated


@click.command(name="migrate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-i", "--in-place", is_flag=True, help="Write the files themselves, each at once or not at all."
)
@click.option(
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="The operator's namespace, in which CacheClusters live.",
)
def command(files: tuple[str, ...], in_place: bool, namespace: str) -> None:
    """Rewrite YAML files of TDCS's earlier API version (tdcs.io/v1alpha1) for the present one.

    FILE may hold many documents, those of other programs too, which stay as they are; - is the standard input. The
    result goes to the standard output, and what was changed to the standard error. A file that needs nothing comes
    out as it went in. When one file is wrong, nothing is written.
    """
    if in_place and "-" in files:
        raise click.UsageError("--in-place needs files, and - is the standard input")
    done = [(file, *_migrated(file, home=namespace)) for file in files]
    for file, text, changes in done:
        for change in changes:
            click.echo(f"{_title(file)}: {change}", err=True)
        if in_place and changes:
            _replace(Path(file), text)
    if not in_place:
        click.echo(joined([text for _, text, _ in done]), nl=False)


def _migrated(file: str, *, home: str) -> tuple[str, list[str]]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise click.ClickException(f"{_title(file)}: {reason}; nothing was written") from error
    try:
        return migrated(text, home=home)
    except MigrationError as error:
        raise click.ClickException(f"{_title(file)}: {error}; nothing was written") from error


def joined(texts: list[str]) -> str:
    """Several files as one stream of documents."""
    whole = ""
    for text in texts:
        if whole and not text.startswith("---"):
            whole += "---\n"
        whole += text if text.endswith("\n") or not text else f"{text}\n"
    return whole


def _replace(path: Path, text: str) -> None:
    """Write a file at once or not at all, with the mode that it had."""
    try:
        target = path.resolve()
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise click.ClickException(f"{path} could not be written: {error.strerror}") from error


def _title(file: str) -> str:
    return "standard input" if file == "-" else file
