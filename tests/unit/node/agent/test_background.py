"""Work beside the agent's loop: each kind once at a time, and a rest for what has failed."""

from __future__ import annotations

import pytest

from tdcs.node.agent.background import FAILED_PAUSE_SECONDS, BackgroundWork


class Looks:
    """Work that counts how often it began, and fails as long as it is asked to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.begun = 0
        self.fails = True
        self.ended = 0
        self.background = BackgroundWork(ended=self.end, clock=lambda: self.now)

    def end(self) -> None:
        self.ended += 1

    async def look(self) -> int:
        self.begun += 1
        if self.fails:
            raise OSError(30, "Read-only file system")
        return 1

    async def again(self, name: str = "look") -> int:
        """Start it, and wait for its end; how often it began by now."""
        self.background.start(name, self.look())
        await self.background.wait(name)
        return self.begun


async def test_work_that_failed_rests_before_it_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks()
    assert await looks.again() == 1
    assert looks.ended == 1
    assert [await looks.again() for _ in range(3)] == [1, 1, 1]
    assert await looks.again("another") == 2, "other work goes on"
    assert caplog.text.count("look failed: [Errno 30]") == 1

    looks.now += FAILED_PAUSE_SECONDS
    looks.fails = False
    assert [await looks.again() for _ in range(2)] == [3, 4], "what succeeds has no rest"
    await looks.background.cancel()
