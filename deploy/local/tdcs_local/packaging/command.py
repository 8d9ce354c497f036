"""`python -m tdcs_local package` and `sbom`: the files of a release, and what its images consist of."""

from pathlib import Path

import click
import yaml

from tdcs_local import programs, shell
from tdcs_local.errors import LocalError
from tdcs_local.kind import images
from tdcs_local.packaging.krew import write_plugin
from tdcs_local.packaging.notes import release_notes
from tdcs_local.packaging.oci_layout import write_layout
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter


@click.command(name="package")
@click.option(
    "--url", required=True, help="Where the release's files will be downloaded from, without a file's name."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=CHECKOUT / ".local" / "release",
    help="The folder; it must not exist.",
)
def package(url: str, output: Path) -> None:
    """Make the files of a release: the chart, its OCI layout, the plugin of kubectl for krew, the notes."""
    reporter = Reporter()
    for path in make_release(url=url, folder=output, reporter=reporter):
        click.echo(path)


SHIPPED = ("tdcs", "alluxio", "store")
"""Images with a bill of materials unless others are named: those of the chart that are made here, and the example
store. kube-scheduler's is Kubernetes' own."""


@click.command(name="sbom")
@click.argument("names", nargs=-1, type=click.Choice(sorted(images.SPECS)))
@click.option(
    "--image",
    "others",
    multiple=True,
    metavar="REFERENCE",
    help="One more image, such as that of kube-scheduler; pulled if it is not there. May be repeated.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=CHECKOUT / ".local" / "sbom",
    help="The folder; files in it are replaced.",
)
def sbom(names: tuple[str, ...], others: tuple[str, ...], output: Path) -> None:
    """Write NAME.cdx.json for images, which are built if they are not there: all that is in them, by its version."""
    # Its library takes long to import, and no other command needs it.
    from tdcs_local.packaging.sbom import write_all

    for path in write_all(names or SHIPPED, others=others, folder=output, reporter=Reporter()):
        click.echo(path)


def make_release(*, url: str, folder: Path, reporter: Reporter) -> list[Path]:
    """Write everything; gives what was written.

    Raises:
        LocalError: the folder exists, the URL is none, or a part could not be made.
    """
    if not url.startswith("https://"):
        raise LocalError(
            what=f"{url!r} is no https:// URL", remedy="give --url https://... of the release's files"
        )
    chart = CHECKOUT / "charts" / "tdcs"
    version = str(yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["version"])
    notes = release_notes(changelog=(CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), version=version)
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise LocalError(
            what=f"{folder} exists already", remedy="remove it, or give another folder with --output"
        ) from error
    helm = programs.ensure("helm", reporter=reporter) / "helm"
    shell.run(
        [str(helm), "package", str(chart), "--destination", str(folder)],
        what="helm did not package the chart",
        log=log_file("helm-package"),
    )
    packed = folder / f"tdcs-{version}.tgz"
    write_layout(chart=packed, folder=folder / "oci")
    manifest = write_plugin(version=version, url=url, license_file=CHECKOUT / "LICENSE", folder=folder)
    written = folder / "RELEASE_NOTES.md"
    written.write_text(notes, encoding="utf-8")
    return [packed, folder / "oci", manifest, folder / f"kubectl-tdcs-{version}.tar.gz", written]
