"""Whether pods see what is mounted inside a view, by the mounts that their namespaces have."""

import os
from pathlib import Path

import pytest

from tdcs.node.csi.mountinfo import Mount
from tdcs.node.csi.views.mount_propagation import all_see, is_blind

VIEW = ("8:1", "/cache/views/d/v/tree")
CLIENT = ("0:50", "/datasets/d")
INSIDE = "train/.tdcs/way/data"


def mount(point: str, shows: tuple[str, str]) -> Mount:
    return Mount(id=1, device=shows[0], root=shows[1], point=point, options=frozenset(), filesystem="ext4")


SHOWN = mount("/data", VIEW)
WAY = mount(f"/data/{INSIDE}", CLIENT)


@pytest.mark.parametrize(
    ("mounts", "blind"),
    {
        "a namespace without the view": ([mount("/data", ("8:1", "/cache/views/d/v/tree2"))], False),
        "the view with its way": ([SHOWN, WAY], False),
        "the view alone": ([SHOWN], True),
        "the way of a client that was replaced": ([SHOWN, mount(WAY.point, ("0:49", "/datasets/d"))], True),
        "an old way below a new one": ([SHOWN, mount(WAY.point, ("0:49", "/datasets/d")), WAY], False),
        "one of two volumes without it": ([SHOWN, WAY, mount("/more", VIEW)], True),
        "a folder of the view": ([mount("/data", ("8:1", "/cache/views/d/v/tree/train"))], True),
    }.values(),
    ids=lambda value: "",
)
def test_a_pod_is_blind_when_any_of_its_volumes_lacks_the_clients_mount_of_now(
    mounts: list[Mount], blind: bool
) -> None:
    assert is_blind(mounts=mounts, view=VIEW, inside=INSIDE, shown=CLIENT) is blind


def test_all_namespaces_are_asked_and_those_that_end_meanwhile_do_not_matter(tmp_path: Path) -> None:
    line = "{id} 1 {device} {root} {point} ro - ext4 x ro\n"
    view = line.format(id=1, device=VIEW[0], root=VIEW[1], point="/data")
    way = line.format(id=2, device=CLIENT[0], root=CLIENT[1], point=WAY.point)
    processes = ((7, "mnt:[1]", view + way), (8, "mnt:[2]", ""), (9, "mnt:[1]", view + way))
    for number, namespace, text in processes:
        (tmp_path / str(number) / "ns").mkdir(parents=True)
        (tmp_path / str(number) / "ns/mnt").symlink_to(namespace)
        (tmp_path / str(number) / "root").symlink_to("/")
        (tmp_path / str(number) / "mountinfo").write_text(text)
    (tmp_path / "10").mkdir()
    (tmp_path / "self").mkdir()

    def seen() -> bool:
        return all_see(proc=tmp_path, view=VIEW, inside=INSIDE, shown=CLIENT)

    assert seen()
    (tmp_path / "8/mountinfo").write_text(view)
    assert not seen()
    os.unlink(tmp_path / "8/mountinfo")
    assert seen()
