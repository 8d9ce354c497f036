"""What a container image consists of: its distribution and Debian's packages, Python distributions with the libraries
in their wheels, jars, and modules of Go programs.

All of it is read from the image's files, so that nothing is listed that is not there. What a program was linked with
is known only where it says so: a Go program always, an extension of a Python distribution by its own bill (PEP 770).
"""

import functools
import hashlib
import io
import json
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from enum import StrEnum
from pathlib import Path

from packageurl import PackageURL

from tdcs_local.alluxio_jars import COORDINATES

OS_RELEASE = ("usr/lib/os-release", "etc/os-release")
"""Where a distribution names itself; the second is mostly a link to the first."""
DPKG_STATUS = re.compile(r"var/lib/dpkg/status(\.d/[^/]+(?<!\.md5sums))?")
"""What dpkg knows of packages; images without dpkg (distroless) have a file a package."""
GO_BUILD_INFO = b"\xff Go buildinf:"
"""What the Go linker puts before the list of a program's modules."""
_ELF = b"\x7fELF"
_METADATA = re.compile(r".*\.(dist-info/METADATA|egg-info/PKG-INFO)")
_WHEEL_BILL = re.compile(r".*\.dist-info/sboms/[^/]+\.json")
_WHEEL_LIBRARY = re.compile(r".*/[^/]+\.libs/(?P<name>[^/]+?)(-[0-9a-f]{8})*\.so[^/]*")
_JAR = re.compile(r"^(?P<artifact>.+?)-(?P<version>\d[^/]*)\.jar$")


class Kind(StrEnum):
    """Where a package comes from: the type in its package URL."""

    DEBIAN = "deb"
    PYTHON = "pypi"
    MAVEN = "maven"
    GO = "golang"
    RUST = "cargo"
    REDHAT = "rpm"
    """Of the machine on which a wheel was made."""
    OTHER = "generic"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The distribution of an image, as its os-release has it: such as `debian`, `12`; testing has no version."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Package:
    """A package in an image.

    Attributes:
        kind: where it comes from.
        namespace: group of a jar, host and path of a Go module, `debian`; empty where there is none.
        name: without the namespace.
        version: empty where it says none.
        sha256: of a jar or library; empty for what is many files.
        architecture: of a Debian package; else empty.
        source: the Debian source package that it is built of, by which weaknesses are published; else empty.
        source_version: the version of that.
    """

    kind: Kind
    namespace: str = ""
    name: str
    version: str = ""
    sha256: str = ""
    architecture: str = ""
    source: str = ""
    source_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an image consists of: its distribution, if it names one, and packages, each once, sorted."""

    system: System | None
    packages: Sequence[Package]


def contents_of(tar: Path, *, go_modules: Callable[[bytes], str]) -> Contents:
    """What is in the tar of an image's file system.

    Args:
        tar: what `docker export` gives.
        go_modules: what `go version -m` says of a program.
    """
    with tarfile.open(tar) as archive:
        files = {posixpath.normpath(member.name): member for member in archive if member.isreg()}

        def read(name: str) -> bytes:
            file = archive.extractfile(files[name])
            assert file is not None, name
            return file.read()

        system = next((system_of(read(name).decode()) for name in OS_RELEASE if name in files), None)
        lists = [read(name).decode() for name in files if posixpath.basename(name) == COORDINATES]
        artifacts = {file: artifact for text in lists for file, artifact in maven_artifacts(text)}
        programs = {name for name, member in files.items() if member.mode & 0o111}
        packages = {
            package
            for name in files
            for package in _packages_in(
                name, functools.partial(read, name), artifacts, go_modules if name in programs else None
            )
        }
    return Contents(system=system, packages=sorted(packages))


def _packages_in(
    name: str,
    read: Callable[[], bytes],
    artifacts: Mapping[str, Package],
    go_modules: Callable[[bytes], str] | None,
) -> Iterable[Package]:
    """The packages that a file names or is; `go_modules` is None for what is no program."""
    if DPKG_STATUS.fullmatch(name):
        return debian_packages(read().decode())
    if _METADATA.fullmatch(name):
        return [python_package(read().decode(errors="replace"))]
    if _WHEEL_BILL.fullmatch(name):
        return bill_packages(read().decode())
    if library := _WHEEL_LIBRARY.fullmatch(name):
        return [Package(kind=Kind.OTHER, name=library["name"], sha256=hashlib.sha256(read()).hexdigest())]
    if name.endswith(".jar"):
        return jar_packages(posixpath.basename(name), read(), artifacts)
    if go_modules is not None:
        content = read()
        if content.startswith(_ELF) and GO_BUILD_INFO in content:
            return go_packages(go_modules(content))
    return []


def system_of(os_release: str) -> System:
    """The distribution that an os-release file is of."""
    fields = dict(re.findall(r"""^([A-Z_]+)=["']?(.*?)["']?$""", os_release, re.MULTILINE))
    return System(name=fields.get("ID", "linux"), version=fields.get("VERSION_ID", ""))


def debian_packages(status: str) -> Iterator[Package]:
    """The installed packages in dpkg's status file; all of those in a file without a status (distroless)."""
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if "Package" not in fields or not fields.get("Status", " installed").endswith(" installed"):
            continue
        # "Source: NAME", or "Source: NAME (VERSION)" where a rebuild has a version of its own.
        name, _, version = (fields.get("Source") or fields["Package"]).partition(" ")
        yield Package(
            kind=Kind.DEBIAN,
            namespace="debian",
            name=fields["Package"],
            version=fields["Version"],
            architecture=fields["Architecture"],
            source=name,
            source_version=version.strip("()") or fields["Version"],
        )


def python_package(metadata: str) -> Package:
    """The distribution that a METADATA file is of, its name as the index normalises it (PEP 503)."""
    headers = HeaderParser().parsestr(metadata)
    name = re.sub(r"[-_.]+", "-", headers["Name"]).lower()
    return Package(kind=Kind.PYTHON, name=name, version=headers["Version"])


def bill_packages(bill: str) -> Iterator[Package]:
    """What the bill in a wheel (PEP 770, CycloneDX) says that its libraries consist of; nothing of another format."""
    for entry in json.loads(bill).get("components", ()):
        # The wheel itself and its parts are there, too; it has its METADATA.
        if "purl" in entry and not entry["purl"].startswith("pkg:pypi/"):
            url = PackageURL.from_string(entry["purl"])
            has_kind = url.type in set(Kind)
            yield Package(
                kind=Kind(url.type) if has_kind else Kind.OTHER,
                namespace=url.namespace or "",
                name=url.name,
                version=url.version or "",
            )


def maven_artifacts(listed: str) -> Iterator[tuple[str, Package]]:
    """File names of jars, and what they are, of what `mvn dependency:list` writes."""
    for coordinates in re.findall(r"^\s+(\S+:\S+)", listed, re.MULTILINE):
        # group:artifact:type[:classifier]:version:scope
        group, name, kind, *classifier, version, _scope = coordinates.split(":")
        file = "-".join([name, version, *classifier])
        yield f"{file}.{kind}", Package(kind=Kind.MAVEN, namespace=group, name=name, version=version)


def jar_packages(file_name: str, content: bytes, artifacts: Mapping[str, Package]) -> Iterator[Package]:
    """The Maven artifacts in a jar: its own, and those that were packed into it.

    Args:
        file_name: such as `netty-common-4.1.87.Final.jar`.
        content: of the jar.
        artifacts: what jars are by their file names; not every build leaves its coordinates in the jar.
    """
    digest = hashlib.sha256(content).hexdigest()
    with zipfile.ZipFile(io.BytesIO(content)) as jar:
        artifacts_in_jar = [
            _artifact(jar.read(path).decode(errors="replace"))
            for path in jar.namelist()
            if re.fullmatch(r"META-INF/maven/[^/]+/[^/]+/pom\.properties", path)
        ]
    named = _JAR.match(file_name)
    main = [artifact for artifact in artifacts_in_jar if named and artifact.name == named["artifact"]]
    if not main:
        name = named["artifact"] if named else file_name.removesuffix(".jar")
        unknown = Package(kind=Kind.OTHER, name=name, version=named["version"] if named else "")
        yield replace(artifacts.get(file_name, unknown), sha256=digest)
    for artifact in artifacts_in_jar:
        yield replace(artifact, sha256=digest) if artifact in main else artifact


def _artifact(properties: str) -> Package:
    fields = dict(re.findall(r"^\s*(groupId|artifactId|version)\s*=\s*(\S+)\s*$", properties, re.MULTILINE))
    return Package(
        kind=Kind.MAVEN,
        namespace=fields.get("groupId", ""),
        name=fields.get("artifactId", ""),
        version=fields.get("version", ""),
    )


def go_packages(listed: str) -> Iterator[Package]:
    """The modules that `go version -m` names, and Go itself; what replaces a module counts in its place."""
    toolchain = re.search(r": go(\d\S*)", listed)
    if toolchain:
        yield Package(kind=Kind.GO, name="stdlib", version=toolchain[1])
    lines = [line.split("\t") for line in listed.splitlines()]
    modules = [line[1:] for line in lines if len(line) >= 4 and line[1] in {"dep", "=>"}]
    for position, (word, path, version, *_) in enumerate(modules):
        replaced = word == "dep" and modules[position + 1 : position + 2] and modules[position + 1][0] == "=>"
        if not replaced:
            namespace, _, name = path.rpartition("/")
            yield Package(kind=Kind.GO, namespace=namespace, name=name, version=version)


def counts(packages: Iterable[Package]) -> dict[str, int]:
    """How many packages there are of each kind."""
    counts: dict[str, int] = {}
    for package in packages:
        counts[package.kind] = counts.get(package.kind, 0) + 1
    return counts
