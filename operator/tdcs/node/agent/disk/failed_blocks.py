"""What is kept of blocks that could not be brought over a restart: why, and how often it was tried."""

from __future__ import annotations

import msgspec

from tdcs.model.agent_state import FailureCode


class FailedBlock(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A block, by its id.

    Attributes:
        reason: empty where only the number of such files is said.
    """

    block: int
    code: FailureCode
    attempts: int
    reason: str = ""


class FailedBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Those of a mount, as they are kept on the disk."""

    mount: str
    blocks: tuple[FailedBlock, ...]
