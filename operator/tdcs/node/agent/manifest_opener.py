"""Gets the manifests that mounts are counted by, and opens them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import ManifestFetcher, ManifestUnavailableError
from tdcs.model.agent_state import Assignment
from tdcs.model.manifest_format import BadManifestError
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.mount.block_ledger import Ledger

_log: Final = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_MOST_PAUSE: Final = 30.0


class ManifestOpener:
    """One agent's way to manifests. What fails is tried again after a pause that grows."""

    def __init__(
        self,
        *,
        manifests: ManifestFolder,
        fetcher: ManifestFetcher,
        clock: Callable[[], float],
    ) -> None:
        self._manifests: Final = manifests
        self._fetcher: Final = fetcher
        self._clock: Final = clock
        self._failures: dict[str, tuple[int, float]] = {}

    def due(self, path: str, assignment: Assignment, *, ledger: Ledger | None) -> bool:
        """Whether an assignment is by another manifest than its mount is counted by, and may be tried now."""
        if ledger is not None and ledger.manifest.digest == assignment.manifest:
            return False
        _, until = self._failures.get(path, (0, 0.0))
        return self._clock() >= until

    async def get(self, path: str, assignment: Assignment) -> bool:
        """Bring the manifest of an assignment to this disk; whether it is there."""
        try:
            await self._fetcher.fetch(digest=assignment.manifest, urls=assignment.manifest_urls)
        except (ManifestUnavailableError, BadManifestError, OSError, ValueError) as error:
            self._failed(path, error)
            return False
        return True

    async def open(self, path: str, digest: str) -> Ledger | None:
        """A new ledger by this manifest; None when it is not on this disk, or cannot be read."""
        try:
            ledger = await asyncio.to_thread(
                lambda: Ledger(self._manifests.open(digest), index_folder=self._manifests.path)
            )
        except FileNotFoundError:
            return None
        except (BadManifestError, OSError, ValueError) as error:
            self._failed(path, error)
            return None
        self._failures.pop(path, None)
        return ledger

    def _failed(self, path: str, error: Exception) -> None:
        failures = self._failures.get(path, (0, 0.0))[0] + 1
        wait = pause(failures, first=_FIRST_PAUSE, most=_MOST_PAUSE)
        self._failures[path] = (failures, self._clock() + wait)
        _log.warning("%s", error)
