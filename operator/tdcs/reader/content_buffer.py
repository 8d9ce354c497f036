"""Bytes that were fetched and will be asked for soon, bounded. The least recently used ones go first."""

from collections import OrderedDict
from collections.abc import Hashable


class ContentBuffer:
    """The buffer of one process.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable) -> bytes | None:
        """What is kept under a key, which becomes the most recently used one."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, content: bytes) -> None:
        """Keep something; what does not fit at all is not kept."""
        self.drop(key)
        if len(content) > self.limit:
            return
        self._kept[key] = content
        self.bytes += len(content)
        while self.bytes > self.limit:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= len(oldest)

    def drop(self, key: Hashable) -> None:
        """Keep it no more; unknown keys are fine."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.bytes -= len(found)
