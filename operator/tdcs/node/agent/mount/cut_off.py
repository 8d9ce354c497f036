"""Blocks that a loss of power cut off: whoever comes to one says so in the same words."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tdcs.node.agent.mount.block_ledger import Ledger


def warn(log: logging.Logger, path: str, ledger: Ledger, blocks: Sequence[int]) -> None:
    """Warn of blocks of another length than the manifest's; at least one."""
    log.warning(
        "%d %s of %s %s not as long as its manifest says, as after a loss of power: what was cut off is removed, and "
        "brought again if it is wanted. The first one is of %s",
        len(blocks),
        "block" if len(blocks) == 1 else "blocks",
        path,
        "is" if len(blocks) == 1 else "are",
        ledger.path(blocks[0]),
    )
