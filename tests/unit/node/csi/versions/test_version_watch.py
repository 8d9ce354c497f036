"""A node handles once each version of a dataset that the master tells, whatever fails meanwhile."""

from pathlib import Path

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.node.csi.views.builders import PATH

from tdcs.node.csi.views.version_watch import VersionWatch
from tdcs.node.csi.volume import Volume
from tdcs.node.csi.volume_folder import SourceNotReadyError

VOLUME = Volume(cluster="default", parts=tuple(PATH.strip("/").split("/")))


class World:
    """An engine, and what was handled."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.engine = MemoryEngine(sources={}, workers={})
        self.handled: list[str] = []
        self.fails = False
        self.watch = self.restarted()

    def restarted(self) -> VersionWatch:
        async def handle(volume: Volume) -> None:
            if self.fails:
                raise SourceNotReadyError("the client does not answer")
            self.handled.append(volume.path)

        self.watch = VersionWatch(
            engine=lambda _: self.engine, cache_root=str(self.root), patience=5.0, handle=handle
        )
        return self.watch

    async def look(self) -> int:
        """How often a dataset was handled in a look."""
        before = len(self.handled)
        await self.watch.look(volumes=[VOLUME])
        return len(self.handled) - before


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node that has handled nothing."""
    return World(tmp_path)


async def test_each_version_is_dealt_with_once_by_whatever_process(world: World) -> None:
    assert await world.look() == 0  # nobody has told one
    await world.engine.set_version(path=PATH, version="1")
    assert await world.look() == 1
    assert await world.look() == 0
    world.restarted()
    assert await world.look() == 0
    await world.engine.set_version(path=PATH, version="2")
    assert await world.look() == 1


async def test_what_could_not_be_dealt_with_is_tried_again(world: World) -> None:
    await world.engine.set_version(path=PATH, version="1")
    world.fails = True
    assert await world.look() == 0
    world.fails = False
    assert await world.look() == 1


async def test_a_master_that_is_away_changes_nothing(world: World) -> None:
    await world.engine.set_version(path=PATH, version="1")
    world.engine.available = False
    assert await world.look() == 0
    world.engine.available = True
    assert await world.look() == 1


async def test_a_new_view_has_handled_the_version_that_was_published_before_its_listing(world: World) -> None:
    await world.engine.set_version(path=PATH, version="1")
    world.watch.handled(volume=VOLUME, version="1")
    assert await world.look() == 0
    world.watch.handled(volume=VOLUME, version=None)
    assert await world.look() == 0
