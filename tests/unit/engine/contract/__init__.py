"""What every engine must do: one suite, run on the engine of the operator and on the one in memory.

A test class inherits from ``EngineContract`` and gives a fixture ``world``. The tests say what they need by ``World``
alone, and clean up their mounts through it.
"""

from tests.unit.engine.contract.mounting import MountingContract
from tests.unit.engine.contract.workers import WorkersContract
from tests.unit.engine.contract.world import SMALL_CAPACITY, Mounts, World, mounts

__all__ = ["SMALL_CAPACITY", "EngineContract", "Mounts", "World", "mounts"]


class EngineContract(MountingContract, WorkersContract):
    """All that an engine promises."""
