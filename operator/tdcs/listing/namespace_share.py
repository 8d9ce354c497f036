"""How many sources of one namespace are counted, asked or looked up at a time."""

import asyncio
from typing import Final
from weakref import WeakValueDictionary


class NamespaceShare:
    """As many places for each namespace: its slow sources keep only others of the same namespace waiting.

    Args:
        places: that a namespace has. Nothing is kept of a namespace that has none taken.
    """

    def __init__(self, places: int) -> None:
        self._places: Final = places
        self._semaphores: Final[WeakValueDictionary[str, asyncio.Semaphore]] = WeakValueDictionary()

    def of(self, namespace: str) -> asyncio.Semaphore:
        return self._semaphores.setdefault(namespace, asyncio.Semaphore(self._places))
