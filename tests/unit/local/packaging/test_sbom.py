"""What an image consists of, read from its files, and the bill of materials that is made of it."""

import datetime
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tdcs_local.packaging.image_packages import GO_BUILD_INFO, Kind, Package, packages_of
from tdcs_local.packaging.sbom import render

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Package: not-a-package

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
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
def found(tmp_path: Path) -> list[Package]:
    asked: list[bytes] = []

    def go_modules(program: bytes) -> str:
        asked.append(program)
        return GO_VERSION

    python = "Metadata-Version: 2.4\nName: Ruamel.YAML\nVersion: 0.18.6\n\nName: in the text\n"
    tar = image(
        tmp_path,
        {
            "./var/lib/dpkg/status": (STATUS.encode(), 0o644),
            "opt/tdcs/lib/python3.11/site-packages/ruamel.yaml-0.18.6.dist-info/METADATA": (python.encode(), 0o644),
            "opt/lib/netty-4.1.jar": (jar(("io.netty", "netty", "4.1"), ("org.jctools", "jctools-core", "3.1")), 0o644),
            "opt/lib/jsr305-3.0.2.jar": (jar(), 0o644),
            "opt/names/alluxio-names.jar": (jar(), 0o644),
            "usr/local/bin/store-gateway": (ELF + GO_BUILD_INFO, 0o755),
            "usr/bin/plain": (ELF, 0o755),
            "usr/share/data": (ELF + GO_BUILD_INFO, 0o644),
        },
    )  # fmt: skip
    packages = packages_of(tar, go_modules=go_modules)
    assert asked == [ELF + GO_BUILD_INFO]
    return packages


def test_every_kind_of_package_is_found_by_what_the_image_says_of_itself(found: list[Package]) -> None:
    assert {(one.kind, one.namespace, one.name, one.version) for one in found} == {
        (Kind.DEBIAN, "debian", "libc6", "2.36-9+deb12u10"),
        (Kind.PYTHON, "", "ruamel-yaml", "0.18.6"),
        (Kind.MAVEN, "io.netty", "netty", "4.1"),
        (Kind.MAVEN, "org.jctools", "jctools-core", "3.1"),
        (Kind.OTHER, "", "jsr305", "3.0.2"),
        (Kind.OTHER, "", "alluxio-names", ""),
        (Kind.GO, "", "stdlib", "1.26.1"),
        (Kind.GO, "github.com/google", "uuid", "v1.6.0"),
        (Kind.GO, "github.com/new", "name", "v1.1.0"),
    }
    # What lies in a jar has no digest of its own.
    assert {one.name for one in found if one.sha256} == {"netty", "jsr305", "alluxio-names"}


def test_the_bill_names_each_package_once_by_its_url_and_is_the_same_each_time(found: list[Package]) -> None:
    def written() -> str:
        return render(
            found,
            reference="tdcs/alluxio:abc",
            image_id=f"sha256:{'1' * 64}",
            made=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )

    text = written()
    assert text == written()
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    image_itself = bill["metadata"]["component"]
    assert (image_itself["type"], image_itself["name"], image_itself["version"]) == (
        "container",
        "tdcs/alluxio",
        "abc",
    )
    assert image_itself["hashes"] == [{"alg": "SHA-256", "content": "1" * 64}]
    references = [one["bom-ref"] for one in bill["components"]]
    assert len(set(references)) == len(references) == len(found)
    assert {one["purl"] for one in bill["components"]} == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64",
        "pkg:pypi/ruamel-yaml@0.18.6",
        "pkg:maven/io.netty/netty@4.1",
        "pkg:maven/org.jctools/jctools-core@3.1",
        "pkg:generic/jsr305@3.0.2",
        "pkg:generic/alluxio-names",
        "pkg:golang/stdlib@1.26.1",
        "pkg:golang/github.com/google/uuid@v1.6.0",
        "pkg:golang/github.com/new/name@v1.1.0",
    }
    (depends,) = [one for one in bill["dependencies"] if one["ref"] == "tdcs/alluxio:abc"]
    assert sorted(depends["dependsOn"]) == sorted(references)
