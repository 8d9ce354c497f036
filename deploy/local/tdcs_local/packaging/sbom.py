"""A software bill of materials (CycloneDX) of each image: `python -m tdcs_local sbom`."""

import datetime
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tdcs_local import cache, host, programs, shell
from tdcs_local.kind import images
from tdcs_local.packaging.image_packages import Contents, Kind, Package, System, contents_of, counts
from tdcs_local.paths import log_file
from tdcs_local.progress import Reporter


def write_all(
    names: Sequence[str], *, references: Sequence[str] = (), folder: Path, reporter: Reporter
) -> list[Path]:
    """Write the bills of materials of images; gives the files.

    Args:
        names: images of the checkout, which are built if they are not there.
        references: images that the engine has, or can pull.
        folder: files in it are replaced.
        reporter: says what is done.

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
            written.append(_write(reference, folder=folder, reporter=reporter))
        written += [_write(reference, folder=folder, reporter=reporter) for reference in references]
    return written


def _write(reference: str, *, folder: Path, reporter: Reporter) -> Path:
    with reporter.step(f"list what is in {reference}") as step:
        contents = _contents_of_image(reference)
        step.result = ", ".join(f"{count} {kind}" for kind, count in counts(contents.packages).items())
    name, _ = name_and_version(reference)
    path = folder / f"{name.rpartition('/')[2]}.cdx.json"
    image_id, created = shell.capture(
        ["docker", "image", "inspect", "--format", "{{.Id}} {{.Created}}", reference]
    ).split()
    text = render(
        contents, reference=reference, image_id=image_id, created=datetime.datetime.fromisoformat(created)
    )
    path.write_text(text, encoding="utf-8")
    return path


def name_and_version(reference: str) -> tuple[str, str]:
    """An image's name with its registry, and its digest or tag; without either the tag is `latest`."""
    named, _, digest = reference.partition("@")
    folder, slash, last = named.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{folder}{slash}{last}", digest or tag or "latest"


def render(contents: Contents, *, reference: str, image_id: str, created: datetime.datetime) -> str:
    """The bill of materials as JSON; equal images give equal texts.

    Args:
        contents: what is in the image.
        reference: the image's name and tag, or digest.
        image_id: its digest, `sha256:...`.
        created: when it was built.
    """
    name, version = name_and_version(reference)
    image = Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=version,
        bom_ref=reference,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=image_id.removeprefix("sha256:"))],
    )
    debian, components = list[Component](), list[Component]()
    for package in contents.packages:
        (debian if package.kind is Kind.DEBIAN else components).append(
            component(package, system=contents.system)
        )
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{reference}@{image_id}"),
        components=[*debian, *components],
    )
    bom.metadata.component = image
    bom.metadata.timestamp = created
    if contents.system is None:
        bom.register_dependency(image, [*debian, *components])
    else:
        # Scanners take the distribution, and so which list of weaknesses counts, from this component.
        distribution = Component(
            type=ComponentType.OPERATING_SYSTEM,
            name=contents.system.name,
            version=contents.system.version or None,
            bom_ref=f"{contents.system.name}-{contents.system.version}",
        )
        bom.components.add(distribution)
        bom.register_dependency(image, [distribution, *components])
        bom.register_dependency(distribution, debian)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def component(package: Package, *, system: System | None) -> Component:
    """A package as CycloneDX has it, with its package URL.

    Weaknesses of a distribution are published by source packages. Scanners have no common way to be given those:
    Grype and others read the qualifier `upstream`, Trivy its own properties.
    """
    is_debian = package.kind is Kind.DEBIAN
    sources = {"SrcName": package.source, "SrcVersion": package.source_version} if is_debian else {}
    purl = PackageURL(
        type=package.kind.value,
        namespace=(system.name if is_debian and system else package.namespace) or None,
        name=package.name,
        version=package.version or None,
        qualifiers=_qualifiers(package, system) if is_debian else None,
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
        properties=[
            Property(name=f"aquasecurity:trivy:{name}", value=value) for name, value in sources.items()
        ],
    )


def _qualifiers(package: Package, system: System | None) -> dict[str, str]:
    """What is said of a Debian package besides its version: what follows from name and version is left out."""
    same_version = package.source_version == package.version
    upstream = package.source if same_version else f"{package.source}@{package.source_version}"
    qualifiers = {
        "arch": package.architecture,
        "distro": f"{system.name}-{system.version}" if system and system.version else "",
        "upstream": "" if upstream == package.name else upstream,
    }
    return {name: value for name, value in qualifiers.items() if value}


def _contents_of_image(reference: str) -> Contents:
    # An image need not name a program, but a container must, even one that is never started.
    container = shell.capture(
        ["docker", "create", reference, "-"], what=f"reading the image {reference} failed"
    )
    try:
        with tempfile.TemporaryDirectory(prefix="tdcs-sbom-") as scratch:
            tar = Path(scratch) / "image.tar"
            shell.run(
                ["docker", "export", "--output", tar, container],
                what=f"reading the image {reference} failed",
                log=log_file("sbom"),
            )
            return contents_of(tar, go_modules=_go_modules)
    finally:
        shell.succeeds(["docker", "rm", container])


def _go_modules(program: bytes) -> str:
    programs.require_go("the list of a program's modules")
    with tempfile.TemporaryDirectory(prefix="tdcs-sbom-") as scratch:
        path = Path(scratch) / "program"
        path.write_bytes(program)
        return shell.capture(["go", "version", "-m", path], what="listing the modules of a Go program failed")
