"""How many files a master knows, and how many its heap has room for, by its own metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

import grpc

from tdcs.alluxio.rpc import METRICS_MASTER, Rpc, RpcFailureError

_DEADLINE: Final = 10.0
_PATHS: Final = "Master.TotalPaths"
_HEAP: Final = "heap.max"
_WORKERS: Final = "Cluster.Workers"

FILE_BYTES: Final = 1536
"""What a master's heap holds of a file with one block: a KiB of the file, and half of one of the block. Of a folder it
holds a KiB, which counts as a file."""

_FOR_FILES: Final = 0.8
"""This part of the heap is for files: a master whose heap is full ends, and reads the same files again at its start."""


class MasterRoom(NamedTuple):
    """Files and folders of a master.

    Attributes:
        paths: that it knows.
        most: that its heap has room for.
        workers: that it knows, each with an agent that exports.
        heap_bytes: how large its heap may be.
    """

    paths: int
    most: int
    workers: int
    heap_bytes: int

    @property
    def share(self) -> int:
        """How many files one agent may export before it asks again, while all others do the same."""
        return max(self.most - self.paths, 0) // max(self.workers, 1)


async def room_of(master: Rpc) -> MasterRoom:
    """Ask a master. Raises RpcFailureError, also when its metrics do not say."""
    answer = await master.unary(service=METRICS_MASTER, method="GetMetrics", deadline=_DEADLINE)
    metrics = answer.metrics
    heap = int(metrics[_HEAP].doubleValue) if _HEAP in metrics else 0
    if heap <= 0 or _PATHS not in metrics:
        raise RpcFailureError(
            code=grpc.StatusCode.UNAVAILABLE, text="its metrics do not say how large its heap is"
        )
    return MasterRoom(
        paths=int(metrics[_PATHS].doubleValue),
        most=int(heap * _FOR_FILES) // FILE_BYTES,
        workers=int(metrics[_WORKERS].doubleValue) if _WORKERS in metrics else 0,
        heap_bytes=heap,
    )
