"""Works on things one after the other in one thread, which runs while there are some."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_log: Final = logging.getLogger(__name__)

_Thing = TypeVar("_Thing")


class OneWorker(Generic[_Thing]):
    """A queue of things, none of which waits in it twice. Thread-safe.

    Args:
        work: takes a thing, in the thread; whatever it raises is logged, and the next thing has its turn.
        name: of the thread.
    """

    def __init__(self, work: Callable[[_Thing], None], *, name: str) -> None:
        self._work: Final = work
        self._name: Final = name
        self._lock: Final = threading.Lock()
        self._waiting: Final[dict[int, _Thing]] = {}
        self._thread: threading.Thread | None = None

    def add(self, thing: _Thing) -> None:
        """Have a thing worked on once more from now on."""
        with self._lock:
            self._waiting.setdefault(id(thing), thing)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # what waits is worked on when the next thing comes
                _log.warning("%s cannot begin: %s", self._name, error)
                return
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                thing = self._waiting.pop(next(iter(self._waiting)))
            try:
                self._work(thing)
            except Exception:
                _log.exception("%s has failed", self._name)
