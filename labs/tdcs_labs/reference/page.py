"""Where a page goes."""

from pathlib import Path

import click


def write_page(text: str, *, output: Path | None) -> None:
    """Write a page into a file, or to standard output."""
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text)
    click.echo(f"wrote {output}")
