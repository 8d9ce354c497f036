"""The engine over Alluxio 2.9.6: its gRPC services driven with dynamic messages, and the settings it runs with."""

from tdcs.alluxio.alluxio_engine import AlluxioEngine

__all__ = ["AlluxioEngine"]
