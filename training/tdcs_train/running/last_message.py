"""What a pod leaves behind: Kubernetes keeps the content of a file as the message of a container that has ended.

`tdcs explain job` reads it, and shows the measured time of a mini-batch beside the one that was planned.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

FILE = "/dev/termination-log"
"""Where Kubernetes reads it, unless the template says otherwise (terminationMessagePath)."""


def leave_message(
    seconds_per_mini_batch: float,
    *,
    flushed_micro_batches: int | None = None,
    environment: Mapping[str, str] = os.environ,
    file: Path = Path(FILE),
) -> None:
    """Writes the figure, in a pod; a file that cannot be written is no reason to fail.

    Args:
        flushed_micro_batches: of a mini-batch in mode flush, whose steps fill and empty the pipeline.
    """
    if "KUBERNETES_SERVICE_HOST" in environment:
        message: dict[str, float] = {"secondsPerMiniBatch": round(seconds_per_mini_batch, 6)}
        if flushed_micro_batches is not None:
            message["flushedMicroBatches"] = flushed_micro_batches
        with contextlib.suppress(OSError):
            file.write_text(json.dumps(message))
