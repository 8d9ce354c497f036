"""A real Alluxio keeps the engine contract."""

from tests.engine.contract import EngineContract


class TestAlluxioEngine(EngineContract):
    """The shared promises."""
