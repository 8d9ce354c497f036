"""Nodes with views."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.node.csi.views.node_world import World, watching


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node whose disk holds nothing yet."""
    return World(tmp_path.resolve())


@pytest.fixture
async def watched(world: World) -> AsyncIterator[World]:
    """The same, with its views looked after."""
    async with watching(world.views):
        yield world
