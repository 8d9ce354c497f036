"""What the node plugin removes of datasets that have no version on the node any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tdcs.node.csi.mountinfo import MountLine
from tdcs.node.csi.views.leftovers import QUIET_SECONDS, clear_abandoned
from tdcs.node.csi.views.view_folders import STAGING


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a dataset whose last version went a while ago."""
    folder = tmp_path / "caches" / "default" / "views" / "datasets%2Fpictures"
    folder.mkdir(parents=True)
    (folder.parent / STAGING).mkdir()
    rest(folder)
    return folder


def rest(folder: Path, *, seconds: float = QUIET_SECONDS + 5) -> None:
    """Nothing was made or removed in it for so long."""
    then = folder.stat().st_mtime - seconds
    os.utime(folder, (then, then))


def tidy(folder: Path) -> None:
    root = folder.parents[2]
    clear_abandoned(cache_root=str(root), pods=str(root / "pods"), view_folders=(), mounts=[])


def test_the_folder_of_a_dataset_without_versions_goes(folder: Path) -> None:
    """Else each Dataset that a node ever showed would leave one forever."""
    tidy(folder)
    assert os.listdir(folder.parent) == [STAGING]


def test_one_of_which_a_version_may_be_made_this_moment_stays(folder: Path) -> None:
    rest(folder, seconds=-QUIET_SECONDS)
    tidy(folder)
    assert folder.exists()


def test_one_with_a_version_stays(folder: Path) -> None:
    (folder / "version").mkdir()
    (folder / "version" / "manifest").write_bytes(b"")
    rest(folder)
    tidy(folder)
    assert (folder / "version" / "manifest").exists()


def test_a_link_in_its_place_is_not_followed(folder: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    rest(foreign)
    planted = folder.parent / "datasets%2Fplanted"
    planted.symlink_to(foreign)
    tidy(folder)
    assert foreign.exists()
    assert planted.is_symlink()


@pytest.mark.parametrize("shown", [True, False])
def test_a_view_without_a_manifest_stays_while_a_pod_is_shown_it(folder: Path, shown: bool) -> None:
    version, pods = folder / "0123", folder.parents[2] / "pods"
    (version / "shown").mkdir(parents=True)
    source = f"tdcs-view@0:9@{version if shown else folder / '4567'}"
    mounted = MountLine(
        id=1,
        device="0:9",
        root="/",
        point=f"{pods}/pod",
        options=frozenset(),
        filesystem="overlay",
        source=source,
    )

    clear_abandoned(cache_root=str(folder.parents[2]), pods=f"{pods}/", view_folders=(), mounts=[mounted])

    assert version.exists() is shown
