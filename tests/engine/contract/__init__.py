"""What every engine must do: one suite, run on the in-memory engine (unit tier) and on a real Alluxio (engine tier).

A test class inherits from ``EngineContract`` and gives a fixture ``world``. The tests say what they need by ``World``
alone, and clean up their mounts through it.
"""

from tests.engine.contract.copying import CopyingContract
from tests.engine.contract.dropping import DroppingContract
from tests.engine.contract.loading import LoadingContract
from tests.engine.contract.mounting import MountingContract
from tests.engine.contract.reading import ReadingContract
from tests.engine.contract.workers import WorkersContract
from tests.engine.contract.world import (
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
    placed,
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
    "placed",
    "used",
]


class EngineContract(
    MountingContract, LoadingContract, CopyingContract, DroppingContract, ReadingContract, WorkersContract
):
    """All that an engine promises."""
