"""Which target the processor of this node runs, as the kernel tells its features."""

import platform
from pathlib import Path

from tdcs.api.targets import processor_features, processor_target


def this_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The best target that runs here; empty where that cannot be known. A container sees its node's processors."""
    try:
        features = processor_features(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return processor_target(machine=platform.machine(), features=features)
