"""Files of a disk that are in no ledger, of which some go while the list of them is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.void]
Keys = npt.NDArray[np.int64]

_LEAST_STRUCK: Final = 1 << 12


class Strangers:
    """The files that the last look has found, but for those that are gone since. Thread-safe.

    To strike some off takes as long as they are many, however many others there are: the others are copied when half of
    them is gone.

    Args:
        rows: those so far.
        key: gives a number for each row, that no other one has.
    """

    def __init__(self, rows: Rows, *, key: Callable[[Rows], Keys]) -> None:
        self._lock: Final = threading.Lock()
        self._key: Final = key
        self.replace(rows)

    def replace(self, rows: Rows) -> None:
        """Another look has found these, in whatever order."""
        keys = self._key(rows)
        order = np.argsort(keys, kind="stable")  # of runs, one for each mount
        with self._lock:
            self._set(rows[order], keys[order])

    def _set(self, rows: Rows, keys: Keys) -> None:
        self._rows, self._keys = rows, keys
        self._present, self._struck = np.ones(len(rows), dtype=np.bool_), 0

    @property
    def rows(self) -> Rows:
        with self._lock:
            return self._rows[self._present] if self._struck else self._rows

    def __len__(self) -> int:
        return len(self._rows) - self._struck

    def strike(self, rows: Rows) -> int:
        """These are gone; how many bytes those of them had that were here."""
        with self._lock:
            if not len(self._rows):
                return 0
            keys = self._key(rows)
            places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            places = np.unique(places[self._keys[places] == keys])
            places = places[self._present[places]]
            self._present[places] = False
            self._struck += len(places)
            size = int(self._rows["size"][places].sum())
            if self._struck > max(_LEAST_STRUCK, len(self._rows) // 2):
                self._set(self._rows[self._present], self._keys[self._present])
            return size
