"""What a new cluster is given of an image is read from docker once."""

from pathlib import Path
from typing import Any

import pytest

from tdcs_local import cache, docker, shell
from tdcs_local.containers import image_archive
from tdcs_local.kind import images
from tdcs_local.progress import Reporter

REFERENCE = "tdcs/store:abc"


@pytest.fixture
def saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often docker was asked for the image, which has two layers; nodes have the lower one."""
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "_blobs", lambda _: frozenset({"sha256:low", "sha256:other"}))
    monkeypatch.setattr(docker, "layers", lambda _: ["sha256:low", "sha256:high"])
    monkeypatch.setattr(docker, "image_id", lambda _: "sha256:id")
    asked: list[str] = []

    def run(command: list[Any], **_: object) -> None:
        asked.append(str(command[-1]))
        Path(command[-2]).write_text("all")

    def write_delta(saved: Path, file: Path, *, name: str, present: frozenset[str]) -> None:
        file.write_text(f"{saved.read_text()} of {name} without {sorted(present)}")

    monkeypatch.setattr(shell, "run", run)
    monkeypatch.setattr(image_archive, "write_delta", write_delta)
    return asked


def lay(folder: Path, *, keep: bool) -> str:
    folder.mkdir()
    with Reporter(quiet=True).step("load") as step:
        images._lay(
            REFERENCE, ["node"], folder / "image.tar", keep=keep, step=step, log=folder.parent / "log"
        )
    assert [file.name for file in folder.iterdir()] == ["image.tar"]
    return (folder / "image.tar").read_text()


def test_a_second_new_cluster_is_given_what_was_kept(tmp_path: Path, saves: list[str]) -> None:
    first, second = lay(tmp_path / "one", keep=True), lay(tmp_path / "two", keep=True)

    assert first == second == f"all of docker.io/{REFERENCE} without ['sha256:low']"
    assert saves == [REFERENCE]


def test_what_a_running_cluster_lacks_is_not_kept(tmp_path: Path, saves: list[str]) -> None:
    lay(tmp_path / "one", keep=False)
    lay(tmp_path / "two", keep=False)

    assert saves == [REFERENCE, REFERENCE]
    assert not (tmp_path / "cache" / "products").exists()


def test_a_second_place_never_overwrites(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        cache.link_or_copy(tmp_path / "a", tmp_path / "b")
    cache.link_or_copy(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "c").read_text() == "a"
