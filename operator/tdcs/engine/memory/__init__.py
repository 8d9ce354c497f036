"""The engine in memory: the twin of the real one, for tests and simulation."""

from tdcs.engine.memory.engine import MemoryEngine, Operation

__all__ = ["MemoryEngine", "Operation"]
