"""When a device has come to a point: processors work at once, GPUs on what was queued for them."""

import time
from typing import Any, Protocol

import torch

from tdcs_train.model.errors import ModelError


class Clock(Protocol):
    """Marks of one device."""

    def mark(self) -> Any:
        """This point."""

    def seconds(self, begin: Any, end: Any) -> float:
        """From one mark to another; waits until the device has come to it."""


class ProcessorClock:
    """Of processors."""

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class CudaClock:
    """Of a GPU, by events in its queue. It was never run on one: no machine of the project has any."""

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


def gpu() -> torch.device:
    """The current GPU.

    Raises:
        ModelError: There is none that this PyTorch can use.
    """
    if not torch.cuda.is_available():
        build = "is built without CUDA" if torch.version.cuda is None else "finds no GPU"
        raise ModelError(
            f"--device cuda: PyTorch {torch.__version__} {build} on this machine; profile where training runs, or with "
            "--device cpu for processors. What processors take says nothing of a GPU"
        )
    return torch.device("cuda", torch.cuda.current_device())
