"""What every engine must do: one suite, run on the in-memory engine (unit tier) and on a real Alluxio (engine tier).

A test class inherits from ``EngineContract`` and gives a fixture ``world``. The tests say what they need by ``World``
alone, and clean up their mounts through it.
"""

from tests.unit.engine.contract.mounting import MountingContract
from tests.unit.engine.contract.workers import WorkersContract
from tests.unit.engine.contract.world import (
    BLOCK_SIZE,
    MIB,
    SMALL_CAPACITY,
    Mounts,
    World,
    becomes_empty,
    blocks_of,
    files_of,
    holders,
    mounts,
    used,
)

__all__ = [
    "BLOCK_SIZE",
    "MIB",
    "SMALL_CAPACITY",
    "EngineContract",
    "Mounts",
    "World",
    "becomes_empty",
    "blocks_of",
    "files_of",
    "holders",
    "mounts",
    "used",
]


class EngineContract(MountingContract, WorkersContract):
    """All that an engine promises."""
