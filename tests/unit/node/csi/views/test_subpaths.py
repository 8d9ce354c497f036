"""Which mounts of parts of a view (`subPath`) are renewed when the remote-read client was replaced."""

from tdcs.node.csi.mountinfo import MountLine
from tdcs.node.csi.views.overlay import Shown
from tdcs.node.csi.views.subpaths import outdated

PODS = "/var/lib/kubelet/"
SUBPATHS = f"{PODS}pods/{{pod}}/volume-subpaths/data/main/{{number}}"


def mount(point: str, *, root: str, device: str = "0:1", version: str = "/v1") -> MountLine:
    """A mount of a view, over this device of the client."""
    return MountLine(
        id=1,
        device="0:9",
        root=root,
        point=point,
        options=frozenset({"ro"}),
        filesystem="overlay",
        source=str(Shown(device, version)),
    )


def subpath(
    number: int, root: str, *, pod: str = "a", device: str = "0:1", version: str = "/v1"
) -> MountLine:
    """kubelet's mount for a subPath."""
    point = SUBPATHS.format(pod=pod, number=number)
    return mount(point, root=root, device=device, version=version)


def renewed(*mounts: MountLine) -> tuple[set[str], set[str]]:
    """The points of what is renewed, and of what is in that."""
    parts = outdated(mounts=mounts, pods=PODS, version="/v1", device="0:2")
    return {part.point for part in parts.renewable}, {part.point for part in parts.nested}


def point(number: int, *, pod: str = "a") -> str:
    """Where a subPath is mounted."""
    return SUBPATHS.format(pod=pod, number=number)


def test_only_a_part_over_an_older_client_is_renewed_no_volumes_or_other_versions() -> None:
    whole = mount(f"{PODS}pods/a/volumes/kubernetes.io~csi/data/mount", root="/")

    assert renewed(whole, subpath(0, "/train"), subpath(1, "/val", version="/v2")) == ({point(0)}, set())


def test_a_part_that_shows_the_client_of_now_on_top_is_left_alone() -> None:
    assert renewed(subpath(0, "/train"), subpath(0, "/train", device="0:2")) == (set(), set())


def test_of_parts_that_are_in_one_another_in_a_pod_only_the_outer_one_is_renewed() -> None:
    mounts = subpath(0, "/train/a.jpg"), subpath(1, "/train"), subpath(2, "/trainer")

    assert renewed(*mounts) == ({point(1), point(2)}, {point(0)})
    assert renewed(subpath(0, "/train"), subpath(0, "/train/a.jpg", pod="b")) == (
        {point(0), point(0, pod="b")},
        set(),
    ), "pods have nothing to do with each other"


def test_a_part_is_in_no_part_of_another_dataset_whose_folder_has_that_name() -> None:
    assert renewed(subpath(0, "/train", version="/other/v1"), subpath(1, "/train/part")) == (
        {point(1)},
        set(),
    )


def test_what_landed_in_the_volume_or_in_another_part_goes_with_that() -> None:
    volume = f"{PODS}pods/a/volumes/kubernetes.io~csi/data/mount"
    landed = mount(f"{volume}/train", root="/train"), mount(f"{point(0)}/x", root="/train/x")

    assert renewed(mount(volume, root="/"), subpath(0, "/train"), *landed) == ({point(0)}, set())
