"""Bytes that were fetched and will be asked for soon, bounded. What has no room goes at the cost of the version of a
dataset that has the most, its least recently used pieces first: so one job's reads do not push out another's."""

from collections import OrderedDict
from typing import Final

from tdcs.node.reader.serving.read import Key


class ContentBuffer:
    """The buffer of one process.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.bytes = 0
        self._pieces: Final[dict[int, OrderedDict[Key, bytes | memoryview]]] = {}
        self._sizes: Final[dict[int, int]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._pieces.get(key.version, ())

    @property
    def versions(self) -> set[int]:
        return set(self._sizes)

    def get(self, key: Key) -> bytes | memoryview | None:
        """What is kept under a key, which becomes the most recently used one."""
        pieces = self._pieces.get(key.version)
        content = pieces.get(key) if pieces is not None else None
        if pieces is not None and content is not None:
            pieces.move_to_end(key)
        return content

    def put(self, key: Key, content: bytes | memoryview) -> None:
        """Keep something; what does not fit at all is not kept."""
        self.drop(key)
        if len(content) > self.limit:
            return
        self._pieces.setdefault(key.version, OrderedDict())[key] = content
        self._sizes[key.version] = self._sizes.get(key.version, 0) + len(content)
        self.bytes += len(content)
        while self.bytes > self.limit:
            most = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(next(iter(self._pieces[most])))

    def drop(self, key: Key) -> None:
        """Keep it no more; unknown keys are fine."""
        pieces = self._pieces.get(key.version)
        content = pieces.pop(key, None) if pieces is not None else None
        if pieces is None or content is None:
            return
        self.bytes -= len(content)
        self._sizes[key.version] -= len(content)
        if not pieces:
            del self._pieces[key.version], self._sizes[key.version]

    def drop_block(self, version: int, block: int) -> None:
        """Keep nothing of a block any more."""
        for key in [key for key in self._pieces.get(version, ()) if key.block == block]:
            self.drop(key)
