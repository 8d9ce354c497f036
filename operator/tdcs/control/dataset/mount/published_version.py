"""The version of a path that agents and node plugins hear of."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tdcs.control.background_task import BackgroundTask
from tdcs.model.cache_engine import Engine, EngineError, EngineUnavailableError

LIMIT_SECONDS = 60.0


@dataclass(eq=False, slots=True, kw_only=True)
class PublishedVersion:
    """Publishes the version of one path, in the background.

    Attributes:
        on_done: called when it has been published, or could not be.
    """

    path: str
    engine: Engine
    on_done: Callable[[], None]
    _sent: str = field(default="", init=False)
    """What was published last and has not been heard of since."""
    _outages: int = field(default=-1, init=False)
    _work: BackgroundTask[None] | None = field(default=None, init=False)

    def publish(self, version: str, *, current: str, outages: int) -> EngineError | bool:
        """Begin to publish a version where the cache has another one; whether it has it, or why that failed.

        Args:
            version: digest of its manifest; empty while there is none.
            current: the path's version, as the cache knows it.
            outages: how often the cache came back: after that the version is published again.
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
            self._sent, self._outages = "", outages
        if current and current == self._sent:
            self._sent = ""  # heard: from now on what the cache says counts, whoever changes it there
        if not version or version in {current, self._sent}:
            return True
        self._work = BackgroundTask(self._publish(version), name="published version", on_done=self.on_done)
        return False

    def reset(self) -> None:
        """What the cache has been given counts no more: it is given again."""
        self._sent = ""

    async def close(self) -> None:
        if self._work is not None:
            await self._work.cancel()

    async def _publish(self, version: str) -> None:
        self._sent = ""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self.engine.set_version(path=self.path, version=version)
        except TimeoutError as error:
            raise EngineUnavailableError(
                attempted=f"publish the version of {self.path}",
                reason=f"it was not written within {LIMIT_SECONDS:g} s",
                remedy="See whether the API server answers",
                path=self.path,
                retryable=True,
            ) from error
        self._sent = version
