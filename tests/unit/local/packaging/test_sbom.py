"""What an image consists of, read from its files, and the bill of materials that is made of it."""

import datetime
import importlib.metadata
import io
import json
import re
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tdcs_local.packaging.image_packages import GO_BUILD_INFO, Contents, Kind, System, contents_of
from tdcs_local.packaging.sbom import name_and_version, render

OS_RELEASE = """\
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
VERSION_ID="12"
ID=debian
"""
STATUS = """\
Package: libc6
Status: install ok installed
Source: glibc
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Package: not-a-package

Package: bash
Status: install ok installed
Source: bash (5.2.15-2)
Architecture: amd64
Version: 5.2.15-2+b13

Package: tar
Status: install ok installed
Architecture: amd64
Version: 1.34

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
# As distroless images have it.
ALONE = """\
Package: tzdata
Architecture: all
Version: 2026a
"""
MAVEN = """
The following files have been resolved:
   com.google.code.findbugs:jsr305:jar:3.0.2:compile
   io.netty:netty-epoll:jar:linux-x86_64:4.1:runtime

"""
WHEEL_BILL = {
    "bomFormat": "CycloneDX",
    "components": [
        {"name": "openssl", "purl": "pkg:generic/openssl@4.0.3?download_url=https://example.org"},
        {"name": "asn1", "purl": "pkg:cargo/asn1@0.2"},
        {"name": "libXau", "purl": "pkg:rpm/almalinux/libXau@1.0.9"},
        {"name": "cryptography", "purl": "pkg:pypi/cryptography@50.0"},
        {"name": "a file of no package"},
    ],
}
GO_VERSION = """\
/tmp/program: go1.26.1
\tpath\tgithub.com/versity/versitygw/cmd/versitygw
\tmod\ttdcs.io/local/versitygw\t(devel)\t
\tdep\tgithub.com/google/uuid\tv1.6.0\th1:x=
\tdep\tgithub.com/old/name\tv1.0.0
\t=>\tgithub.com/new/name\tv1.1.0\th1:y=
\tbuild\t-trimpath=true
"""
ELF = b"\x7fELF" + bytes(64)


def jar(*artifacts: tuple[str, str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")
        for group, name, version in artifacts:
            text = f"#Generated\r\nversion={version}\r\ngroupId = {group}\r\nartifactId={name}\r\n"
            archive.writestr(f"META-INF/maven/{group}/{name}/pom.properties", text)
    return packed.getvalue()


def image(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> Path:
    path = folder / "image.tar"
    with tarfile.open(path, "w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("opt/lib/link.jar")
        link.type, link.linkname = tarfile.SYMTYPE, "netty-4.1.jar"
        archive.addfile(link)
    return path


@pytest.fixture
def found(tmp_path: Path) -> Contents:
    asked: list[bytes] = []

    def go_modules(program: bytes) -> str:
        asked.append(program)
        return GO_VERSION

    python = "Metadata-Version: 2.4\nName: Ruamel.YAML\nVersion: 0.18.6\n\nName: in the text\n"
    packages = "opt/tdcs/lib/python3.11/site-packages"
    tar = image(
        tmp_path,
        {
            "./var/lib/dpkg/status": (STATUS.encode(), 0o644),
            "var/lib/dpkg/status.d/tzdata": (ALONE.encode(), 0o644),
            "var/lib/dpkg/status.d/tzdata.md5sums": (b"0 Package: x", 0o644),
            f"{packages}/ruamel.yaml-0.18.6.dist-info/METADATA": (python.encode(), 0o644),
            f"{packages}/cryptography-50.0.dist-info/sboms/sbom.json": (json.dumps(WHEEL_BILL).encode(), 0o644),
            f"{packages}/numpy.libs/libgfortran-040039e1-0352e75f.so.5.0.0": (ELF, 0o755),
            "opt/lib/netty-4.1.jar": (jar(("io.netty", "netty", "4.1"), ("org.jctools", "jctools-core", "3.1")), 0o644),
            "opt/lib/netty-epoll-4.1-linux-x86_64.jar": (jar(), 0o644),
            "opt/lib/jsr305-3.0.2.jar": (jar(), 0o644),
            "opt/lib/unknown-7.jar": (jar(), 0o644),
            "opt/lib/maven-dependencies.txt": (MAVEN.encode(), 0o644),
            "opt/names/alluxio-names.jar": (jar(), 0o644),
            "usr/local/bin/store-gateway": (ELF + GO_BUILD_INFO, 0o755),
            "usr/bin/plain": (ELF, 0o755),
            "usr/share/data": (ELF + GO_BUILD_INFO, 0o644),
            "usr/lib/os-release": (OS_RELEASE.encode(), 0o644),
        },
    )  # fmt: skip
    contents = contents_of(tar, go_modules=go_modules)
    assert asked == [ELF + GO_BUILD_INFO]
    return contents


def bill_of(contents: Contents) -> dict[str, Any]:
    def written() -> str:
        return render(
            contents,
            reference="tdcs/alluxio:abc",
            image_id=f"sha256:{'1' * 64}",
            created=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )

    text = written()
    assert text == written()
    bill: dict[str, Any] = json.loads(text)
    return bill


@pytest.mark.threat("package-authors")
def test_every_kind_of_package_is_found_by_what_the_image_says_of_itself(found: Contents) -> None:
    assert found.system == System(name="debian", version="12")
    assert {(one.kind, one.namespace, one.name, one.version) for one in found.packages} == {
        (Kind.DEBIAN, "debian", "libc6", "2.36-9+deb12u10"),
        (Kind.DEBIAN, "debian", "bash", "5.2.15-2+b13"),
        (Kind.DEBIAN, "debian", "tar", "1.34"),
        (Kind.DEBIAN, "debian", "tzdata", "2026a"),
        (Kind.PYTHON, "", "ruamel-yaml", "0.18.6"),
        (Kind.OTHER, "", "openssl", "4.0.3"),
        (Kind.RUST, "", "asn1", "0.2"),
        (Kind.REDHAT, "almalinux", "libXau", "1.0.9"),
        (Kind.OTHER, "", "libgfortran", ""),
        (Kind.MAVEN, "io.netty", "netty", "4.1"),
        (Kind.MAVEN, "org.jctools", "jctools-core", "3.1"),
        (Kind.MAVEN, "io.netty", "netty-epoll", "4.1"),
        (Kind.MAVEN, "com.google.code.findbugs", "jsr305", "3.0.2"),
        (Kind.OTHER, "", "unknown", "7"),
        (Kind.OTHER, "", "alluxio-names", ""),
        (Kind.GO, "", "stdlib", "1.26.1"),
        (Kind.GO, "github.com/google", "uuid", "v1.6.0"),
        (Kind.GO, "github.com/new", "name", "v1.1.0"),
    }
    # What is in a jar has no digest of its own.
    with_digest = {one.name for one in found.packages if one.sha256}
    assert with_digest == {"libgfortran", "netty", "netty-epoll", "jsr305", "unknown", "alluxio-names"}


def test_the_bill_names_each_package_once_by_its_url_and_is_the_same_each_time(found: Contents) -> None:
    bill = bill_of(found)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    image_itself = bill["metadata"]["component"]
    assert (image_itself["type"], image_itself["name"], image_itself["version"]) == (
        "container",
        "tdcs/alluxio",
        "abc",
    )
    assert image_itself["hashes"] == [{"alg": "SHA-256", "content": "1" * 64}]
    packages = [one for one in bill["components"] if one["type"] == "library"]
    references = [one["bom-ref"] for one in packages]
    assert len(set(references)) == len(references) == len(found.packages)
    assert {one["purl"] for one in packages} == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/bash@5.2.15-2%2Bb13?arch=amd64&distro=debian-12&upstream=bash%405.2.15-2",
        "pkg:deb/debian/tar@1.34?arch=amd64&distro=debian-12",
        "pkg:deb/debian/tzdata@2026a?arch=all&distro=debian-12",
        "pkg:pypi/ruamel-yaml@0.18.6",
        "pkg:generic/openssl@4.0.3",
        "pkg:cargo/asn1@0.2",
        "pkg:rpm/almalinux/libXau@1.0.9",
        "pkg:generic/libgfortran",
        "pkg:maven/io.netty/netty@4.1",
        "pkg:maven/org.jctools/jctools-core@3.1",
        "pkg:maven/io.netty/netty-epoll@4.1",
        "pkg:maven/com.google.code.findbugs/jsr305@3.0.2",
        "pkg:generic/unknown@7",
        "pkg:generic/alluxio-names",
        "pkg:golang/stdlib@1.26.1",
        "pkg:golang/github.com/google/uuid@v1.6.0",
        "pkg:golang/github.com/new/name@v1.1.0",
    }


def test_scanners_are_given_the_distribution_and_the_source_of_each_of_its_packages(found: Contents) -> None:
    bill = bill_of(found)
    (system,) = [one for one in bill["components"] if one["type"] == "operating-system"]
    assert (system["name"], system["version"]) == ("debian", "12")
    depends = {one["ref"]: set(one.get("dependsOn", ())) for one in bill["dependencies"]}
    packages = {one["bom-ref"]: one for one in bill["components"] if one is not system}
    of_debian = {ref for ref, one in packages.items() if one["purl"].startswith("pkg:deb/")}
    assert depends["tdcs/alluxio:abc"] == {system["bom-ref"]} | packages.keys() - of_debian
    assert depends[system["bom-ref"]] == of_debian
    sources = {
        packages[ref]["name"]: {
            one["name"].rpartition(":")[2]: one["value"] for one in packages[ref]["properties"]
        }
        for ref in of_debian
    }
    assert sources == {
        "libc6": {"SrcName": "glibc", "SrcVersion": "2.36-9+deb12u10"},
        "bash": {"SrcName": "bash", "SrcVersion": "5.2.15-2"},
        "tar": {"SrcName": "tar", "SrcVersion": "1.34"},
        "tzdata": {"SrcName": "tzdata", "SrcVersion": "2026a"},
    }


def test_the_bill_of_an_image_without_a_distribution_has_none(tmp_path: Path) -> None:
    tar = image(tmp_path, {"plugin": (ELF + GO_BUILD_INFO, 0o755)})
    contents = contents_of(tar, go_modules=lambda _: GO_VERSION)
    bill = bill_of(contents)
    assert contents.system is None
    assert {one["type"] for one in bill["components"]} == {"library"}
    (depends,) = [one for one in bill["dependencies"] if one["ref"] == "tdcs/alluxio:abc"]
    assert sorted(depends["dependsOn"]) == sorted(one["bom-ref"] for one in bill["components"])


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("tdcs/alluxio:abc", ("tdcs/alluxio", "abc")),
        ("localhost:5000/store", ("localhost:5000/store", "latest")),
        ("registry.k8s.io/kube-scheduler:v1.34.4", ("registry.k8s.io/kube-scheduler", "v1.34.4")),
        ("registry.k8s.io/kube-scheduler@sha256:0a", ("registry.k8s.io/kube-scheduler", "sha256:0a")),
    ],
)
def test_an_image_is_named_by_its_tag_or_digest(reference: str, expected: tuple[str, str]) -> None:
    assert name_and_version(reference) == expected


def test_the_distributions_of_a_real_environment_are_listed_with_what_their_wheels_bring(
    tmp_path: Path,
) -> None:
    folder = Path(sysconfig.get_path("platlib"))
    tar = tmp_path / "environment.tar"
    with tarfile.open(tar, "w") as archive:
        for pattern in ("*.dist-info", "*.libs"):
            for path in folder.glob(pattern):
                archive.add(path, arcname=f"opt/site-packages/{path.name}")
    found = contents_of(tar, go_modules=lambda _: "").packages
    of_python = {(one.name, one.version) for one in found if one.kind is Kind.PYTHON}
    installed = {
        (re.sub(r"[-_.]+", "-", one.name).lower(), one.version)
        for one in importlib.metadata.distributions(path=[str(folder)])
    }
    assert of_python == installed
    names = {(one.kind, one.name) for one in found if one.version}
    assert (Kind.OTHER, "openssl") in names, "in cryptography"
    assert (Kind.RUST, "rustls") in names, "in obstore"
    assert [one for one in found if "openblas" in one.name and one.sha256], "in numpy"
