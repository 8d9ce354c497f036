"""What a PersistentVolume may name."""

from pathlib import Path

import pytest

from tdcs.node.csi.volume import InvalidVolumeError, parse_target, parse_volume


@pytest.mark.parametrize("path", ["/datasets/abc", "datasets/abc", "/datasets/abc/"])
def test_a_folder_of_a_cache_cluster_is_accepted(path: str) -> None:
    volume = parse_volume(attributes={"cluster": "default", "path": path})

    assert volume.cluster == "default"
    assert volume.path == "/datasets/abc"


@pytest.mark.parametrize(
    "path",
    ["", "/", ".", "..", "/datasets/../../etc", "/datasets/./abc", "//etc", "/datasets//abc", "a\0b", "../x"],
)
def test_a_path_that_could_leave_the_cache_is_refused(path: str) -> None:
    with pytest.raises(InvalidVolumeError, match="'path'"):
        parse_volume(attributes={"cluster": "default", "path": path})


@pytest.mark.parametrize("cluster", ["", "..", "a/b", "/", "-a", "a..b", "A", "a\0", "a\n"])
def test_a_name_that_no_cache_cluster_can_have_is_refused(cluster: str) -> None:
    with pytest.raises(InvalidVolumeError, match="'cluster'"):
        parse_volume(attributes={"cluster": cluster, "path": "/datasets/abc"})


def test_tiers_are_read_in_their_order() -> None:
    attributes = {"cluster": "default", "path": "/datasets/abc", "tiers": "/mnt/nvme,/mnt/hdd/cache"}

    assert parse_volume(attributes=attributes).tiers == ("/mnt/nvme", "/mnt/hdd/cache")


@pytest.mark.parametrize(
    "tiers", ["/", ",", "mnt", "/mnt/../etc", "/mnt/.", "/mnt/a,", "/mnt//a", "/mnt/a\n"]
)
def test_a_tier_that_is_no_plain_folder_is_refused(tiers: str) -> None:
    with pytest.raises(InvalidVolumeError, match="'tiers'"):
        parse_volume(attributes={"cluster": "default", "path": "/datasets/abc", "tiers": tiers})


@pytest.mark.parametrize("attribute", ["cluster", "path"])
def test_a_missing_attribute_is_named(attribute: str) -> None:
    attributes = {"cluster": "default", "path": "/datasets/abc"}
    del attributes[attribute]

    with pytest.raises(InvalidVolumeError, match=f"'{attribute}'"):
        parse_volume(attributes=attributes)


def test_a_target_in_kubelets_folder_is_accepted(tmp_path: Path) -> None:
    target = tmp_path / "pods/p/mount"

    assert parse_target(path=str(target), kubelet=tmp_path) == str(target)


def test_links_on_the_way_to_the_target_are_resolved_as_mountinfo_shows_them(tmp_path: Path) -> None:
    (tmp_path / "real/pods").mkdir(parents=True)
    (tmp_path / "kubelet").symlink_to("real")

    resolved = parse_target(path=str(tmp_path / "kubelet/pods/mount"), kubelet=tmp_path / "kubelet")

    assert resolved == str(tmp_path / "real/pods/mount")


def test_a_target_outside_of_kubelets_folder_is_refused(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet"
    kubelet.mkdir()
    (kubelet / "out").symlink_to(tmp_path)

    for path in (tmp_path / "etc", kubelet, kubelet / "out/x", Path("relative/x"), f"{kubelet}/../x", ""):
        with pytest.raises(InvalidVolumeError, match="target path"):
            parse_target(path=str(path), kubelet=kubelet)
