"""The files of a release: what they hold, and that they fit together."""

import hashlib
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tdcs_local.errors import LocalError
from tdcs_local.packaging.command import make_release
from tdcs_local.packaging.krew import write_plugin
from tdcs_local.packaging.notes import release_notes
from tdcs_local.packaging.oci_layout import CHART_CONFIG, CHART_CONTENT, MANIFEST
from tdcs_local.paths import CHECKOUT
from tdcs_local.progress import Reporter

URL = "https://example.org/releases/0.1.0"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "files"
    make_release(url=URL, folder=folder, reporter=Reporter(quiet=True))
    return folder


def blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    """What a descriptor points at, whole and unchanged."""
    content: bytes = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


def test_the_oci_layout_holds_the_chart_as_helm_pushes_it(release: Path) -> None:
    layout = release / "oci"
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "0.1.0"}
    manifest = json.loads(blob(layout, entry))
    assert (entry["mediaType"], manifest["mediaType"]) == (MANIFEST, MANIFEST)
    assert manifest["config"]["mediaType"] == CHART_CONFIG
    assert json.loads(blob(layout, manifest["config"]))["name"] == "tdcs"
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == CHART_CONTENT
    assert blob(layout, layer) == (release / "tdcs-0.1.0.tgz").read_bytes()
    with tarfile.open(release / "tdcs-0.1.0.tgz") as chart:
        assert {"tdcs/Chart.yaml", "tdcs/crds/tdcs.io_datasets.yaml"} <= set(chart.getnames())


def test_the_manifest_is_one_that_krew_takes_and_names_the_archive_that_is_there(release: Path) -> None:
    manifest = yaml.safe_load((release / "tdcs.yaml").read_text())
    spec = manifest["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "krew.googlecontainertools.github.com/v1alpha2",
        "Plugin",
    )
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    archive = release / "kubectl-tdcs-0.1.0.tar.gz"
    with tarfile.open(archive) as packed:
        inside = {member.name: member.mode for member in packed}
    assert inside == {"kubectl-tdcs": 0o755, "LICENSE": 0o644}
    for platform in spec["platforms"]:
        assert platform["uri"] == f"{URL}/{archive.name}"
        assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
        assert platform["bin"] in inside
        assert {one["from"] for one in platform["files"]} == set(inside)


def test_the_plugins_archive_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made = write_plugin(
            version="1.2.3", url=URL, license_file=CHECKOUT / "LICENSE", folder=tmp_path / name
        )
        found.append((made.read_bytes(), (tmp_path / name / "kubectl-tdcs-1.2.3.tar.gz").read_bytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("tdcs", "status -A"),
        ("uvx", "--from tdcs==0.1.0 tdcs status -A"),
        ("pipx", "run --spec tdcs==0.1.0 tdcs status -A"),
    ],
)
def test_the_launcher_runs_what_is_there_with_its_arguments(
    release: Path, tmp_path: Path, program: str, arguments: str
) -> None:
    with tarfile.open(release / "kubectl-tdcs-0.1.0.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / program).write_text('#!/bin/sh\necho "$(basename "$0") $*"\n')
    (programs / program).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", tmp_path / "kubectl-tdcs", "status", "-A"],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{program} {arguments}\n"


def test_without_any_way_to_run_it_the_launcher_says_what_to_install(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release / "kubectl-tdcs-0.1.0.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    done = subprocess.run(
        ["/bin/sh", tmp_path / "kubectl-tdcs"], env={"PATH": "/nowhere"}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install tdcs==0.1.0" in done.stderr


def test_the_notes_are_the_versions_section_or_what_is_not_released() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## [0.1.0] - 2026-01-01\n\n### Added\n\n- old\n"
    assert release_notes(changelog=changelog, version="0.1.0") == "# TDCS 0.1.0\n\n### Added\n\n- old\n"
    assert release_notes(changelog=changelog, version="0.2.0") == "# TDCS 0.2.0\n\n- new\n"
    with pytest.raises(LocalError, match=r"no notes for 0\.2\.0"):
        release_notes(changelog="# Changelog\n\n## Unreleased\n", version="0.2.0")


def test_a_release_is_never_written_over_another_or_without_its_place(release: Path, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="exists already"):
        make_release(url=URL, folder=release, reporter=Reporter(quiet=True))
    with pytest.raises(LocalError, match="no https:// URL"):
        make_release(url="", folder=tmp_path / "other", reporter=Reporter(quiet=True))
    assert not (tmp_path / "other").exists()
    assert (release / "RELEASE_NOTES.md").read_text().startswith("# TDCS 0.1.0\n\nThe first release.")
