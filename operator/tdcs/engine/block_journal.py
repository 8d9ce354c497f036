"""The journal that ids of blocks belong to: they begin anew when a cache is deleted and made again.

The agent notes the journal of a tier's blocks before anything of it lies there (`tdcs.node.agent.disk.epoch`), and the
node plugin that of each version of a dataset. Where the two differ, a block here only has the same id as one of the
version.
"""

import os
from contextlib import suppress

from tdcs.api import names
from tdcs.engine.confined_path import open_plain_file


def epoch_file(tier: str) -> str:
    return os.path.join(tier, names.AGENT_EPOCH)


def journal_in(file: str) -> str:
    """The journal that a file names; empty when it names none, or cannot be read."""
    with suppress(OSError, ValueError), open(open_plain_file(file), encoding="utf-8") as text:
        return text.read().strip()
    return ""
