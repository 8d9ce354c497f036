"""In which run of the kernel a store was last made ready by its agent: what others find in it is right only since then.

After a loss of power files may be there that were never on the disk as a whole. The agent compares those before it
notes the running kernel; the node plugin links no file of a store that was not made ready since.
"""

import functools
import os
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.engine.confined_path import open_plain_file

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """Identity of the running kernel."""
    return _BOOT_ID.read_text().strip()


def boot_file(tier: str) -> str:
    return os.path.join(tier, names.AGENT_BOOT)


def is_doubtful(tier: str) -> bool:
    """Whether an agent has made the store ready before, and none since the machine was started."""
    try:
        with open(open_plain_file(boot_file(tier)), encoding="utf-8") as text:
            return text.read().strip() != boot_id()
    except (OSError, ValueError):
        return False


def is_ready(tier: str) -> bool:
    """Whether an agent has made the store ready since the machine was started."""
    try:
        with open(open_plain_file(boot_file(tier)), encoding="utf-8") as text:
            return text.read().strip() == boot_id()
    except (OSError, ValueError):
        return False
