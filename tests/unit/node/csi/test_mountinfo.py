"""Reading what the kernel says is mounted."""

from pathlib import Path

from tdcs.node.csi import mountinfo
from tdcs.node.csi.bind_mount import label_option

LINES = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw",
    "80 22 0:50 / /var/lib/tdcs/fuse/default rw,nosuid shared:9 master:2 - fuse.alluxio-fuse alluxio rw,user_id=0",
    r"81 22 0:51 /a\040b /mnt/with\040space ro - tmpfs none rw",
    "90 80 0:60 / /var/lib/tdcs/fuse/default ro - tmpfs again rw",
]


def test_fields_are_found_with_any_number_of_optional_fields() -> None:
    first, fuse, spaced, _ = mountinfo.parse(lines=LINES)

    assert (first.device, first.filesystem, first.options) == ("254:0", "ext4", frozenset({"rw", "relatime"}))
    assert (fuse.id, fuse.filesystem) == (80, "fuse.alluxio-fuse")
    assert (spaced.root, spaced.point, spaced.filesystem) == ("/a b", "/mnt/with space", "tmpfs")


def test_of_stacked_mounts_the_last_one_is_seen() -> None:
    top = mountinfo.top(mounts=mountinfo.parse(lines=LINES), point="/var/lib/tdcs/fuse/default")

    assert top is not None
    assert top.id == 90


def test_nothing_is_mounted_below_a_mount_point_by_itself() -> None:
    assert (
        mountinfo.top(mounts=mountinfo.parse(lines=LINES), point="/var/lib/tdcs/fuse/default/datasets")
        is None
    )


def test_this_process_sees_its_root() -> None:
    assert mountinfo.top(mounts=mountinfo.read(), point=str(Path("/"))) is not None


def test_each_namespace_is_read_once_and_one_that_ends_meanwhile_does_not_matter(tmp_path: Path) -> None:
    processes = ((7, "mnt:[1]", LINES[:1]), (8, "mnt:[2]", LINES[1:2]), (9, "mnt:[1]", LINES[:1]))
    for number, namespace, lines in processes:
        (tmp_path / str(number) / "ns").mkdir(parents=True)
        (tmp_path / str(number) / "ns/mnt").symlink_to(namespace)
        (tmp_path / str(number) / "root").symlink_to("/")
        (tmp_path / str(number) / "mountinfo").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "10").mkdir()
    (tmp_path / "self").mkdir()

    def seen() -> list[list[str]]:
        return sorted([mount.point for mount in mounts] for mounts in mountinfo.namespaces(tmp_path))

    assert seen() == [["/"], ["/var/lib/tdcs/fuse/default"]]
    (tmp_path / "8/mountinfo").unlink()
    assert seen() == [["/"]]


def test_an_overlay_is_labelled_for_containers_where_the_kernel_has_selinux(tmp_path: Path) -> None:
    filesystems = tmp_path / "filesystems"
    filesystems.write_text("nodev\tsysfs\n\text4\n")
    assert label_option(filesystems=filesystems) == ""

    filesystems.write_text("nodev\tsysfs\nnodev\tselinuxfs\n\text4\n")

    assert label_option(filesystems=filesystems) == ',context="system_u:object_r:container_file_t:s0"'
