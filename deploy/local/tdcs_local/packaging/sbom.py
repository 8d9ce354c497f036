"""A software bill of materials (CycloneDX) of each image: `python -m tdcs_local sbom`."""

import datetime
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tdcs_local import cache, docker, host, programs, shell
from tdcs_local.kind import images
from tdcs_local.packaging.image_packages import Kind, Package, counts, packages_of
from tdcs_local.paths import log_file
from tdcs_local.progress import Reporter


def write_all(names: Sequence[str], *, folder: Path, reporter: Reporter) -> list[Path]:
    """Write the bills of materials of images; gives the files.

    Raises:
        LocalError: an image could not be built, or not be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with host.engine_in_use():
        host.start_engine(reporter=reporter)
        for name in names:
            spec = images.spec_of(name)
            reference = f"tdcs/{name}:{images.tag(spec)}"
            with cache.locked(f"image-{name}"):
                images.build(spec, reference=reference, reporter=reporter)
            with reporter.step(f"list what is in {reference}") as step:
                packages = _packages_of_image(reference)
                step.result = ", ".join(f"{count} {kind}" for kind, count in counts(packages).items())
            path = folder / f"{name}.cdx.json"
            text = render(
                packages, reference=reference, image_id=docker.image_id(reference), made=_made(reference)
            )
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def render(packages: Sequence[Package], *, reference: str, image_id: str, made: datetime.datetime) -> str:
    """The bill of materials as JSON; equal images give equal texts.

    Args:
        packages: what is in the image.
        reference: the image's name and tag.
        image_id: its digest, `sha256:...`.
        made: when it was built.
    """
    name, _, tag = reference.rpartition(":")
    image = Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=tag,
        bom_ref=reference,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=image_id.removeprefix("sha256:"))],
    )
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{reference}@{image_id}"),
        components=[component(package) for package in packages],
    )
    bom.metadata.component = image
    bom.metadata.timestamp = made
    bom.register_dependency(image, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def component(package: Package) -> Component:
    """A package as CycloneDX has it, with its package URL."""
    qualifiers = {"arch": package.architecture} if package.architecture else None
    purl = PackageURL(
        type=package.kind.value,
        namespace=package.namespace or None,
        name=package.name,
        version=package.version or None,
        qualifiers=qualifiers,
    )
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)] if package.sha256 else []
    return Component(
        type=ComponentType.LIBRARY,
        group=package.namespace if package.kind in {Kind.MAVEN, Kind.GO} else None,
        name=package.name,
        version=package.version or None,
        purl=purl,
        # Two jars may hold the same artifact.
        bom_ref=f"{purl.to_string()}#{package.sha256[:12]}" if package.sha256 else purl.to_string(),
        hashes=hashes,
    )


def _packages_of_image(reference: str) -> list[Package]:
    container = shell.capture(["docker", "create", reference], what=f"reading the image {reference} failed")
    try:
        with tempfile.TemporaryDirectory(prefix="tdcs-sbom-") as scratch:
            tar = Path(scratch) / "image.tar"
            shell.run(
                ["docker", "export", "--output", tar, container],
                what=f"reading the image {reference} failed",
                log=log_file("sbom"),
            )
            return packages_of(tar, go_modules=_go_modules)
    finally:
        shell.succeeds(["docker", "rm", container])


def _go_modules(program: bytes) -> str:
    programs.require_go("the list of a program's modules")
    with tempfile.TemporaryDirectory(prefix="tdcs-sbom-") as scratch:
        path = Path(scratch) / "program"
        path.write_bytes(program)
        return shell.capture(["go", "version", "-m", path], what="listing the modules of a Go program failed")


def _made(reference: str) -> datetime.datetime:
    text = shell.capture(["docker", "image", "inspect", "--format", "{{.Created}}", reference])
    return datetime.datetime.fromisoformat(text)
