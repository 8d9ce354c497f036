"""What a container image consists of: Debian's packages, Python distributions, jars, and modules of Go programs.

All of it is read from the image's files, so that nothing is listed that is not there.
"""

import hashlib
import io
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from enum import StrEnum
from pathlib import Path

DPKG_STATUS = "var/lib/dpkg/status"
GO_BUILD_INFO = b"\xff Go buildinf:"
"""What the Go linker puts before the list of a program's modules."""
_ELF = b"\x7fELF"
_JAR = re.compile(r"^(?P<artifact>.+?)-(?P<version>\d[^/]*)\.jar$")


class Kind(StrEnum):
    """Where a package comes from: the type in its package URL."""

    DEBIAN = "deb"
    PYTHON = "pypi"
    MAVEN = "maven"
    GO = "golang"
    OTHER = "generic"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Package:
    """A package in an image.

    Attributes:
        kind: where it comes from.
        namespace: group of a jar, host and path of a Go module, `debian`; empty where there is none.
        name: without the namespace.
        version: empty where it says none.
        sha256: of a jar; empty for what is many files.
        architecture: of a Debian package; else empty.
    """

    kind: Kind
    namespace: str = ""
    name: str
    version: str = ""
    sha256: str = ""
    architecture: str = ""


def packages_of(tar: Path, *, go_modules: Callable[[bytes], str]) -> list[Package]:
    """The packages in the tar of an image's file system, each once, sorted.

    Args:
        tar: what `docker export` gives.
        go_modules: what `go version -m` says of a program.
    """
    with tarfile.open(tar) as archive:
        return sorted(set(_scan(archive, go_modules)))


def _scan(archive: tarfile.TarFile, go_modules: Callable[[bytes], str]) -> Iterator[Package]:
    for member in archive:
        name = posixpath.normpath(member.name)
        file = archive.extractfile(member) if member.isreg() else None
        if file is None:
            continue
        if name == DPKG_STATUS:
            yield from debian_packages(file.read().decode())
        elif re.search(r"\.(dist-info/METADATA|egg-info/PKG-INFO)$", name):
            yield python_package(file.read().decode(errors="replace"))
        elif name.endswith(".jar"):
            yield from jar_packages(posixpath.basename(name), file.read())
        elif member.mode & 0o111 and file.read(4) == _ELF:
            content = _ELF + file.read()
            if GO_BUILD_INFO in content:
                yield from go_packages(go_modules(content))


def debian_packages(status: str) -> Iterator[Package]:
    """The installed packages in dpkg's status file."""
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield Package(
                kind=Kind.DEBIAN,
                namespace="debian",
                name=fields["Package"],
                version=fields["Version"],
                architecture=fields["Architecture"],
            )


def python_package(metadata: str) -> Package:
    """The distribution that a METADATA file is of, its name as the index normalises it (PEP 503)."""
    headers = HeaderParser().parsestr(metadata)
    name = re.sub(r"[-_.]+", "-", headers["Name"]).lower()
    return Package(kind=Kind.PYTHON, name=name, version=headers["Version"])


def jar_packages(file_name: str, content: bytes) -> Iterator[Package]:
    """The Maven artifacts in a jar: its own, and those that were packed into it."""
    digest = hashlib.sha256(content).hexdigest()
    with zipfile.ZipFile(io.BytesIO(content)) as jar:
        found = [
            _artifact(jar.read(path).decode(errors="replace"))
            for path in jar.namelist()
            if re.fullmatch(r"META-INF/maven/[^/]+/[^/]+/pom\.properties", path)
        ]
    named = _JAR.match(file_name)
    own = [one for one in found if named and one.name == named["artifact"]]
    if not own:
        # Not every build leaves its coordinates in the jar.
        name = named["artifact"] if named else file_name.removesuffix(".jar")
        version = named["version"] if named else ""
        yield Package(kind=Kind.OTHER, name=name, version=version, sha256=digest)
    for one in found:
        is_own = one in own
        yield Package(
            kind=one.kind,
            namespace=one.namespace,
            name=one.name,
            version=one.version,
            sha256=digest if is_own else "",
        )


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
    found: dict[str, int] = {}
    for package in packages:
        found[package.kind] = found.get(package.kind, 0) + 1
    return found
