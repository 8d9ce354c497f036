"""The bills of materials of the real images name what scanners of known weaknesses look for."""

import json
from typing import Any

import pytest

from tdcs_local.packaging.command import SHIPPED
from tdcs_local.packaging.sbom import write_all
from tdcs_local.progress import Reporter

WITHOUT_COORDINATES = {f"pkg:generic/{jar}" for jar in ("alluxio-names", "ca-certificates-java", "jrt-fs")}
"""Our own jar, and those in Debian's packages of Java, which are listed as such."""


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory, reporter: Reporter) -> dict[str, dict[str, Any]]:
    """The bill of each image."""
    written = write_all(SHIPPED, folder=tmp_path_factory.mktemp("sbom"), reporter=reporter)
    return {path.name.partition(".")[0]: json.loads(path.read_text()) for path in written}


def urls(bill: dict[str, Any]) -> set[str]:
    return {component["purl"] for component in bill["components"] if "purl" in component}


@pytest.mark.threat("package-authors")
def test_every_image_names_its_distribution_and_the_sources_of_its_packages(bills: dict[str, Any]) -> None:
    assert bills.keys() == set(SHIPPED)
    for name, bill in bills.items():
        (system,) = [component for component in bill["components"] if component["type"] == "operating-system"]
        assert (system["name"], bool(system["version"])) == ("debian", True), name
        distro = f"distro=debian-{system['version']}"
        debian = {url for url in urls(bill) if url.startswith("pkg:deb/")}
        assert len(debian) > 50, name
        assert [url for url in debian if distro not in url] == [], name
        (libc,) = [url for url in debian if url.startswith("pkg:deb/debian/libc6@")]
        assert libc.endswith("&upstream=glibc"), name


@pytest.mark.threat("package-authors")
def test_what_python_jars_and_go_bring_is_listed_by_the_names_of_their_indexes(bills: dict[str, Any]) -> None:
    of_tdcs, of_alluxio, of_store = (urls(bills[name]) for name in ("tdcs", "alluxio", "store"))
    for start in ("pkg:pypi/tdcs@", "pkg:pypi/kopf@", "pkg:generic/openssl@", "pkg:cargo/rustls@"):
        assert [url for url in of_tdcs if url.startswith(start)], start
    assert {url for url in of_alluxio if url.startswith("pkg:generic/")} == WITHOUT_COORDINATES
    for start in (
        "pkg:maven/org.alluxio/",
        "pkg:maven/io.netty/netty-handler@",
        "pkg:maven/io.grpc/grpc-core@",
    ):
        assert [url for url in of_alluxio if url.startswith(start)], start
    for start in ("pkg:golang/stdlib@", "pkg:golang/github.com/versity/versitygw"):
        assert [url for url in of_store if url.startswith(start)], start
