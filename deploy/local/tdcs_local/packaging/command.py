"""`python -m tdcs_local package` and `sbom`: the files of a release, and what its images consist of."""

import tempfile
from pathlib import Path

import click
import yaml

from tdcs_local import cache, host, programs, shell
from tdcs_local.errors import LocalError
from tdcs_local.kind import images
from tdcs_local.packaging import last_release
from tdcs_local.packaging.image_layout import write_image_layout
from tdcs_local.packaging.krew import write_plugin
from tdcs_local.packaging.notes import release_notes
from tdcs_local.packaging.oci_layout import write_layout
from tdcs_local.packaging.signature import sign, write_sums
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
@click.option(
    "--images/--no-images", "with_images", default=True, help="Whether images and their SBOMs are made, too."
)
@click.option(
    "--sign-key",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A private key (P-256, PEM) that signs the sums of all files, for `cosign verify-blob`.",
)
def package(url: str, output: Path, with_images: bool, sign_key: Path | None) -> None:
    """Make the files of a release: chart, images, SBOMs, krew's plugin, notes, sums and their signature."""
    reporter = Reporter()
    written = make_release(url=url, folder=output, reporter=reporter)
    if with_images:
        written += add_images(folder=output, version=chart_version(), reporter=reporter)
    sums = write_sums(output)
    written += [sums, *(sign(sums, key_file=sign_key) if sign_key else ())]
    for path in written:
        click.echo(path)


@click.command(name="last-release")
@click.option("--of", "revision", default="", help="Tag or commit of the release.  [default: the last tag]")
def last_release_command(revision: str) -> None:
    """Make the files of a release before this checkout, from its own commit; prints their folder."""
    click.echo(last_release.ensure(revision, reporter=Reporter()))


RELEASED = ("tdcs", "alluxio")
"""The images of the chart that are made here."""
CHART = CHECKOUT / "charts" / "tdcs"
SHIPPED = ("tdcs", "alluxio", "store")
"""Images with a bill of materials unless others are named: those of the chart that are made here, and the example
store. kube-scheduler's is Kubernetes' own."""


@click.command(name="sbom")
@click.argument("names", nargs=-1, type=click.Choice(sorted(images.SPECS)))
@click.option(
    "--image",
    "references",
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
def sbom(names: tuple[str, ...], references: tuple[str, ...], output: Path) -> None:
    """Write NAME.cdx.json for images, which are built if they are not there: all that is in them, by its version."""
    # Its library takes long to import, and no other command needs it.
    from tdcs_local.packaging.sbom import write_all

    for path in write_all(names or SHIPPED, references=references, folder=output, reporter=Reporter()):
        click.echo(path)


def chart_version() -> str:
    """The version of the chart, which is that of the release."""
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"])


def add_images(*, folder: Path, version: str, reporter: Reporter) -> list[Path]:
    """Write the layout and the bill of materials of each image of the chart; builds what is not there.

    Raises:
        LocalError: an image could not be built, or not be read.
    """
    from tdcs_local.packaging.sbom import write_all

    written = []
    with host.engine_in_use(), tempfile.TemporaryDirectory(prefix="tdcs-package-") as scratch:
        host.start_engine(reporter=reporter)
        for name in RELEASED:
            spec = images.spec_of(name)
            reference = f"tdcs/{name}:{images.tag(spec)}"
            with cache.locked(f"image-{name}"):
                images.build(spec, reference=reference, reporter=reporter)
            with reporter.step(f"write the OCI layout of {reference}"):
                archive = Path(scratch) / f"{name}.tar"
                shell.run(
                    ["docker", "save", "--output", archive, reference],
                    what=f"reading the image {reference} failed",
                    log=log_file("package-images"),
                )
                write_image_layout(archive=archive, tag=version, folder=folder / "images" / name)
                archive.unlink()
            written.append(folder / "images" / name)
    return [*written, *write_all(RELEASED, folder=folder / "sbom", reporter=reporter)]


def make_release(*, url: str, folder: Path, reporter: Reporter) -> list[Path]:
    """Write everything; gives what was written.

    Raises:
        LocalError: the folder exists, the URL is none, or a part could not be made.
    """
    if not url.startswith("https://"):
        raise LocalError(
            what=f"{url!r} is no https:// URL", remedy="give --url https://... of the release's files"
        )
    version = chart_version()
    notes = release_notes(changelog=(CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), version=version)
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise LocalError(
            what=f"{folder} exists already", remedy="remove it, or give another folder with --output"
        ) from error
    helm = programs.ensure("helm", reporter=reporter) / "helm"
    shell.run(
        [str(helm), "package", str(CHART), "--destination", str(folder)],
        what="helm did not package the chart",
        log=log_file("helm-package"),
    )
    packed = folder / f"tdcs-{version}.tgz"
    write_layout(chart=packed, folder=folder / "oci")
    manifest = write_plugin(version=version, url=url, license_file=CHECKOUT / "LICENSE", folder=folder)
    written = folder / "RELEASE_NOTES.md"
    written.write_text(notes, encoding="utf-8")
    return [packed, folder / "oci", manifest, folder / f"kubectl-tdcs-{version}.tar.gz", written]
