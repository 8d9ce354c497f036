"""Numbers of versions on a node: one for each, for as long as the kernel may know files by it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tdcs.engine.reader_files import MOST_VERSIONS, RegisteredVersions, Registration, VersionNumbers

GIVEN = Registration(cluster="default", path="/datasets/1", manifest="/m")


def name(version: int) -> str:
    return f"default.{version:032x}"


class Node:
    """A client's folder, for which plugins come one after the other."""

    def __init__(self, root: Path, *, now: float = 0.0) -> None:
        self.root, self.now = root, now
        self.registered = RegisteredVersions(root / "versions")
        self.restart_plugin()

    def restart_plugin(self) -> None:
        self.numbers = VersionNumbers(self.root, registered=self.registered, now=lambda: self.now)

    def register(self, version: int) -> int:
        """Register a version; its number."""
        self.numbers.register(name(version), GIVEN)
        found = self.registered.read(name(version))
        assert found is not None
        return found.number

    def forget(self, version: int) -> None:
        (self.registered.folder / name(version)).unlink()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_version_keeps_its_number_and_no_other_one_ever_gets_it(node: Node) -> None:
    first, second = node.register(1), node.register(2)
    node.restart_plugin()
    assert (node.register(1), node.register(2)) == (first, second)
    node.forget(2)
    node.restart_plugin()
    assert node.register(3) not in {first, second}


def test_a_registration_that_is_lost_comes_again_with_its_number(node: Node) -> None:
    node.register(1)
    number = node.register(2)
    node.forget(2)
    assert node.register(2) == number


@pytest.mark.parametrize("lost", [None, b"", b"12\x00garbage"])
def test_numbers_go_on_ahead_of_those_given_when_the_last_one_is_lost(node: Node, lost: bytes | None) -> None:
    node.now = 1.8e9
    given = {node.register(version) for version in range(9)}
    for version in range(9):
        node.forget(version)
    file = node.root / "last-number"
    file.unlink()
    if lost is not None:
        file.write_bytes(lost)
    node.now += 9 * 64
    node.restart_plugin()
    assert node.register(100) > max(given)


@pytest.mark.parametrize("torn", [b"", b'{"number": 1, "clus', b'{"number": "x"}'])
def test_a_registration_that_cannot_be_read_is_written_again(node: Node, torn: bytes) -> None:
    first = node.register(1)
    (node.registered.folder / name(2)).write_bytes(torn)
    node.restart_plugin()
    assert node.register(2) != first
    assert node.registered.names() == [name(1), name(2)]


def test_of_two_versions_with_one_number_the_next_to_be_registered_gets_another(node: Node) -> None:
    number = node.register(1)
    (node.registered.folder / name(2)).write_bytes(
        msgspec.json.encode(msgspec.structs.replace(GIVEN, number=number))
    )
    assert set(node.registered.by_number()[number]) == {name(1), name(2)}
    node.restart_plugin()
    assert node.register(2) != number
    assert node.registered.by_number()[number] == [name(1)]


def test_a_node_that_has_given_all_numbers_says_so(node: Node) -> None:
    (node.root / "last-number").write_text(str(MOST_VERSIONS))
    with pytest.raises(OSError, match="reboot it"):
        node.register(1)
    assert node.registered.names() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Node]:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = "size=64k,mode=755"
    found = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=False)
    if found.returncode:
        pytest.skip("no file system can be mounted here")
    yield Node(disk)
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("room", range(0, 8192, 1024))
@pytest.mark.failure_mode("node-power-lost-at-registration")
def test_a_full_disk_lets_no_two_versions_have_one_number(small_disk: Node, room: int) -> None:
    given = {small_disk.register(1), small_disk.register(2)}
    filler = small_disk.root / "filler"
    with filler.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(1024))
        file.truncate(file.tell() - room)
    for version in (3, 4, 5):
        try:
            given.add(small_disk.register(version))
        except OSError:
            assert name(version) not in small_disk.registered.names()
            small_disk.restart_plugin()
    filler.unlink()
    numbers = [small_disk.register(version) for version in range(1, 7)]
    assert len(set(numbers)) == 6
    assert given <= set(numbers)
