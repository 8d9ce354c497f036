"""An image's tag is its content."""

from pathlib import Path

import pytest

from tdcs_local.containers import base_image, torch_root
from tdcs_local.errors import LocalError
from tdcs_local.kind import images
from tdcs_local.kind.images import Spec


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(images, "CHECKOUT", tmp_path)
    monkeypatch.setattr(images, "FOLDER", tmp_path / "deploy/images")
    monkeypatch.setenv("TDCS_BASE_IMAGE", "debian:bookworm-slim")
    folder = tmp_path / "deploy/images/thing"
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM x\n")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.py").write_text("1")
    return tmp_path


SPEC = Spec(name="thing", files={"source": "source"})


def test_the_tag_changes_with_the_dockerfile_a_source_or_the_base(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [images.tag(SPEC)]
    (checkout / "source/a.py").write_text("2")
    tags.append(images.tag(SPEC))
    (checkout / "deploy/images/thing/Dockerfile").write_text("FROM y\n")
    tags.append(images.tag(SPEC))
    monkeypatch.setenv("TDCS_BASE_IMAGE", "debian:trixie-slim")
    tags.append(images.tag(SPEC))
    assert len(set(tags)) == 4


def test_the_tag_ignores_what_running_leaves_behind(checkout: Path) -> None:
    before = images.tag(SPEC)
    (checkout / "source/__pycache__").mkdir()
    (checkout / "source/__pycache__/a.cpython-311.pyc").write_bytes(b"x")
    (checkout / "source/tdcs.egg-info").mkdir()
    (checkout / "source/tdcs.egg-info/PKG-INFO").touch()
    assert images.tag(SPEC) == before


def test_every_image_of_the_project_has_a_dockerfile_with_the_base_of_its_release() -> None:
    for spec in images.SPECS.values():
        text = (spec.folder / "Dockerfile").read_text()
        release = torch_root.ROOT.release if spec.torch else base_image.BASE.release
        assert f"ARG BASE_IMAGE=debian:{release}-slim" in text, spec.name
        assert "FROM ${BASE_IMAGE}" in text, spec.name


def test_an_unknown_image_is_answered_with_the_known_ones() -> None:
    with pytest.raises(LocalError, match="alluxio"):
        images.spec_of("aluxio")


def test_an_image_whose_sources_are_gone_says_which(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "SPECS", {"thing": SPEC})
    (checkout / "source/a.py").unlink()
    (checkout / "source").rmdir()
    with pytest.raises(LocalError, match="source"):
        images.spec_of("thing")
