"""The folders and files of one version as FUSE knows them: numbers of nodes, names, attributes.

A node's number has the version's number in its upper 24 bits, one bit that says "file", and the place in the manifest:
so nothing has to be remembered of what the kernel asked for, by this process or by the next.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tdcs.model.file_times import TIME_TAG, UNKNOWN_TIME, time_of
from tdcs.model.manifest import Manifest
from tdcs.node.reader.fuse_protocol import Attributes, directory_entry

_SHIFT: Final = 40
_FILE: Final = 1 << 39
_PLACE: Final = _FILE - 1
_NUMBERED: Final = _PLACE


class Node(NamedTuple):
    """A file or folder: of which version, and its number in the manifest."""

    version: int
    place: int
    is_file: bool


def parse_node(node: int) -> Node:
    return Node(node >> _SHIFT, node & _PLACE, bool(node & _FILE))


class VersionTree:
    """The tree of one version.

    Args:
        number: of the version.
    """

    def __init__(self, *, manifest: Manifest, number: int) -> None:
        self.manifest: Final = manifest
        self._lengths: Final = manifest.lengths.data
        self._base: Final = number << _SHIFT
        self._timed: Final = len(manifest) > 0 and manifest.tag(0).startswith(TIME_TAG)
        self._children: dict[int, dict[bytes, int]] = {}
        numbers = {folder: place for place, folder in enumerate(manifest.folders)}
        for folder, place in numbers.items():
            if folder:
                parent, _, name = folder.rpartition(b"/")
                self._children.setdefault(numbers[parent], {})[name] = place

    def root(self) -> Attributes:
        return self.folder(0)

    def numbered(self) -> Attributes:
        """A folder that has each file under its number in the manifest, and lists none."""
        return self.folder(_NUMBERED)

    def folder(self, place: int) -> Attributes:
        return Attributes(self._base | place, 4096, UNKNOWN_TIME, False)

    def file(self, place: int) -> Attributes:
        time = time_of(self.manifest.tag(place)) if self._timed else UNKNOWN_TIME
        return Attributes(self._base | _FILE | place, self._lengths[place], time, True)

    def attributes(self, node: Node) -> Attributes | None:
        """The attributes of a node; None when the version has no such node."""
        if node.is_file:
            return self.file(node.place) if node.place < len(self.manifest) else None
        is_folder = node.place < len(self.manifest.folders) or node.place == _NUMBERED
        return self.folder(node.place) if is_folder else None

    def find(self, *, folder: int, name: bytes) -> Attributes | None:
        if folder == _NUMBERED:
            is_file = name.isdigit() and len(name) < 20 and int(name) < len(self.manifest)
            return self.file(int(name)) if is_file else None
        file = self.manifest.find(folder=folder, name=name)
        if file is not None:
            return self.file(file)
        child = self._children.get(folder, {}).get(name)
        return None if child is None else self.folder(child)

    def entries(self, *, folder: int, offset: int, size: int, plus: bool) -> bytes:
        """Entries of a folder from the one numbered `offset`, in at most `size` bytes; nothing at the end."""
        entries, used = [], 0
        for following, (attributes, name) in enumerate(self._listed(folder, offset), start=offset + 1):
            entry = directory_entry(attributes, name=name, following=following, plus=plus)
            used += len(entry)
            if used > size:
                break
            entries.append(entry)
        return b"".join(entries)

    def _listed(self, folder: int, offset: int) -> Iterator[tuple[Attributes, bytes]]:
        if folder == _NUMBERED:
            return
        children = self._children.get(folder, {})
        if offset < len(children):
            for name, child in list(children.items())[offset:]:
                yield self.folder(child), name
        files = self.manifest.in_folder(folder)
        for file in range(files.start + max(0, offset - len(children)), files.stop):
            yield self.file(file), self.manifest.name(file)
