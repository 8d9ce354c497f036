"""The settings of a path in the cache: how reads treat it, what of it is protected, and which version it has."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tdcs.control.background_task import BackgroundTask
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model.cache_engine import Engine, EngineError, EngineUnavailableError

READ_TYPE = "alluxio.user.file.readtype.default"
"""Alluxio's key for what a read does to the cache."""

LIMIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSettings:
    """The settings of a path.

    Attributes:
        pinned: engine paths that are protected from eviction, and nothing else is.
        version: digest of its manifest; empty while there is none.
    """

    fills: bool
    pinned: frozenset[str]
    version: str = ""


def wanted_settings(
    path: str, wants: Sequence[Want], placements: Sequence[WantPlacement], *, owned: bool, version: str
) -> WantedSettings:
    """How the path is read, and what of it is protected: the root when the operator owns the placement, or somebody
    wants all of it; else the folders that are wanted as a whole. Blocks of a fraction are protected by the agents."""
    if owned or any(want.subset.whole for want in wants):
        return WantedSettings(fills=False, pinned=frozenset({path}), version=version)
    unknown = {below for one in placements for below in one.totals.unknown_paths}
    pinned = frozenset(
        f"{path}/{below}"
        for want in wants
        if want.subset.fraction in {None, 1.0} and want.subset.amount is None
        for below in want.paths
        if below not in unknown
    )
    return WantedSettings(fills=True, pinned=pinned, version=version)


@dataclass(eq=False, slots=True, kw_only=True)
class PathSettings:
    """Brings the settings of one path to the cache, in the background.

    Attributes:
        on_done: called when a change has been carried out, or could not be.
    """

    path: str
    engine: Engine
    on_done: Callable[[], None]
    _applied: WantedSettings | None = field(default=None, init=False)
    _version: str = field(default="", init=False)
    _outages: int = field(default=-1, init=False)
    _work: BackgroundTask[None] | None = field(default=None, init=False)

    def apply(self, wanted: WantedSettings, *, version: str, outages: int) -> EngineError | bool:
        """Begin what is missing; gives whether all is as wanted, or why it could not be done.

        Args:
            version: what the cache says that the path's version is.
            outages: how often the cache came back: after that all of it is set again.
        """
        work = self._work
        if work is not None and work.running:
            return False
        self._work = None
        if work is not None:
            try:
                work.result()
            except EngineError as error:
                return error
        if outages != self._outages:
            self._applied, self._version, self._outages = None, "", outages
        if version and version == self._version:
            self._version = ""  # heard: from now on what the cache says counts, whoever changes it there
        if self._applied == wanted and (not wanted.version or wanted.version in {version, self._version}):
            return True
        self._work = BackgroundTask(self._carry_out(wanted), name="path settings", on_done=self.on_done)
        return False

    def reset(self) -> None:
        """What the cache has been given counts no more: it is given again."""
        self._applied, self._version = None, ""

    async def close(self) -> None:
        if self._work is not None:
            await self._work.cancel()

    async def _carry_out(self, wanted: WantedSettings) -> None:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self._set(wanted)
        except TimeoutError as error:
            raise EngineUnavailableError(
                attempted=f"set how {self.path} is read and protected",
                reason=f"the master has not answered within {LIMIT_SECONDS:g} s",
                remedy="See the pods of the cache",
                path=self.path,
                retryable=True,
            ) from error

    async def _set(self, wanted: WantedSettings) -> None:
        before, self._applied = self._applied, None
        if before is None or before.fills != wanted.fills:
            read_type = "CACHE" if wanted.fills else "NO_CACHE"
            await self.engine.set_path_properties(path=self.path, properties={READ_TYPE: read_type})
        await self._protect(wanted.pinned, known=before.pinned if before is not None else None)
        if wanted.version and self._version != wanted.version:
            await self.engine.set_version(path=self.path, version=wanted.version)
            self._version = wanted.version
        self._applied = wanted

    async def _protect(self, wanted: frozenset[str], *, known: frozenset[str] | None) -> None:
        """Pin what is wanted, and nothing else: what reads have cached must be able to go."""
        if known is None and self.path not in wanted:
            await self.engine.pin(path=self.path, pinned=False)  # whatever it was in an earlier life
        known = known or frozenset()
        for path in sorted(known - wanted):
            await self.engine.pin(path=path, pinned=False)
        # What is in a folder that was let go of was let go of with it.
        for path in sorted(wanted if known - wanted else wanted - known):
            await self.engine.pin(path=path, pinned=True)
