"""What happens between two steps of the plugin: blocks that come while it looks, processes that are killed."""

import os
import time
from pathlib import Path

import pytest
from tests.support.waiting import eventually_async
from tests.unit.node.csi.views.builders import drop_block, is_placeholder, needs_overlays, put_blocks
from tests.unit.node.csi.views.node_world import World

from tdcs.api import names
from tdcs.model.manifest import Manifest
from tdcs.node.csi.views.overlay import make_placeholder
from tdcs.node.csi.views.view_plan import Kinds, PlannedBlocks

pytestmark = needs_overlays

LENGTH = 5
STEPS = ["setxattr", "fchmod", "ftruncate", "utime"]


def age(path: Path, seconds: float) -> None:
    """Have a folder or file be changed last so many seconds ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


async def test_a_block_that_comes_while_the_blocks_are_looked_at_is_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mount()
    ids = await world.load()
    drop_block(world.tier, ids["train/1.jpg"])
    tree = await world.opened()
    assert is_placeholder(tree / "train/1.jpg")
    (view,) = world.views._views.values()
    age(world.tier / names.AGENT_SPOOL, 100)  # else its time counts as one that may not show the next change
    store = view._store
    look = store.scan

    def scan(*, manifest: Manifest, kinds: Kinds) -> PlannedBlocks:
        scan_result = look(manifest=manifest, kinds=kinds)
        put_blocks(world.tier, {ids["train/1.jpg"]: b"111"})
        age(world.tier / names.AGENT_SPOOL, 50)
        return scan_result

    monkeypatch.setattr(store, "scan", scan)
    await view.complete()
    monkeypatch.undo()
    assert is_placeholder(tree / "train/1.jpg")
    await eventually_async(lambda: view.due, deadline=60)
    await view.complete()
    assert (tree / "train/1.jpg").read_text() == "111"


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("calls", range(1, 5))
def test_a_process_that_is_killed_while_it_makes_a_placeholder_leaves_no_file_of_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Such a file would be taken for one of the source's, and read as zeros."""
    path, calls_left = tmp_path / "file", [calls]

    def dying(name: str) -> object:
        real = getattr(os, name)

        def call(*args: object, **others: object) -> object:
            calls_left[0] -= 1
            if not calls_left[0]:
                raise KilledError
            return real(*args, **others)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, dying(name))
    with pytest.raises(KilledError):
        make_placeholder(os.fsencode(path), number=7, length=LENGTH, mode=0o444)
    monkeypatch.undo()
    assert path.stat().st_size != LENGTH
