"""``python -m tdcs_local store ...``: the commands around :mod:`tdcs_local.store`."""

import json
from pathlib import Path

import click

from tdcs_local.progress import Reporter
from tdcs_local.store import operations as operations


@click.group()
def store() -> None:
    """The slow object store: an S3 server in the cluster behind a link with a rate that can be set."""


@store.command()
def up() -> None:
    """Install the store, or bring it up to date, and wait until it is ready."""
    operations.up(reporter=Reporter())


@store.command()
@click.option(
    "--egress", metavar="RATE", help="What leaves the store (downloads): 200mbit, 1gbit, unlimited."
)
@click.option("--ingress", metavar="RATE", help="What enters the store (uploads).")
def link(egress: str | None, ingress: str | None) -> None:
    """Set the rate of the store's link; connections go on. It is kept over restarts of the store."""
    if egress is None and ingress is None:
        raise click.UsageError("name at least one rate: --egress 200mbit, --ingress unlimited")
    operations.set_link(egress=egress, ingress=ingress, reporter=Reporter())


@store.command()
def status() -> None:
    """Print rates (bits per second, null is unlimited), bytes sent and buckets as JSON."""
    click.echo(json.dumps(operations.status(), indent=2))


@store.command()
@click.argument("name", type=click.Choice([*operations.DATASETS, operations.IMAGES]))
@click.option("--bucket", default="", help="The bucket; by default it is named like the dataset.")
@click.option("--files", type=click.IntRange(min=1), help="How many files (not for images).")
@click.option("--size", help="Bytes of a file, or a range: 100KiB, 10KiB-200KiB (not for images).")
@click.option("--seed", help="Another seed gives other bytes (not for images).")
def fill(name: str, bucket: str, files: int | None, size: str | None, seed: str | None) -> None:
    """Fill a bucket with a test dataset: small, large (made from a seed) or images (real JPEG files).

    The same parameters always give the same bytes; a bucket that holds them already is left alone.
    """
    seeded = None
    if name != operations.IMAGES:
        defaults = operations.DATASETS[name]
        seeded = operations.Made(
            files=files or defaults.files, size=size or defaults.size, seed=seed or defaults.seed
        )
    elif files is not None or size is not None or seed is not None:
        raise click.UsageError("--files, --size and --seed are for the datasets that are made from a seed")
    click.echo(json.dumps(operations.fill(name, reporter=Reporter(), bucket=bucket, seeded=seeded)))


@store.command()
@click.argument("bucket")
def remove(bucket: str) -> None:
    """Remove a bucket that `fill` has made. Delete its Datasets first: they have no source any more."""
    operations.remove(bucket, reporter=Reporter())


@store.command()
@click.argument("bucket")
@click.option(
    "--format", "style", type=click.Choice(["json", "sha256sum"]), default="json", show_default=True
)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="A file instead of stdout."
)
def manifest(bucket: str, style: str, output: Path | None) -> None:
    """Print path, size and SHA-256 of every file of a filled bucket.

    The format sha256sum can be checked where the data is read: `sha256sum --check`.
    """
    content = operations.manifest(bucket)
    text = json.dumps(content, indent=1) + "\n"
    if style == "sha256sum":
        text = "".join(f"{file['sha256']}  {file['path']}\n" for file in content["files"])
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text)


@store.command()
@click.option("--namespace", "-n", required=True, help="Where the Dataset is; it must exist.")
@click.option("--name", default="tdcs-store", show_default=True, help="The name of the Secret.")
def credentials(namespace: str, name: str) -> None:
    """Create the Secret that a Dataset's secretRef names (keys accessKeyId, secretAccessKey)."""
    operations.credentials(namespace=namespace, name=name, reporter=Reporter())
