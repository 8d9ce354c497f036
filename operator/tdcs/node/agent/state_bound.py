"""Keeps an agent's state small: what it says for people is bounded in bytes, whatever tenants call their files.

The operator refuses a state that is too large, and takes the agent for away then. Counts and bitmaps are as many as the
mounts that it has assigned; names and reasons are the only texts in it that a tenant writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tdcs.model.agent_state import FileFailure, MountState

NAMED_FILES: Final = 500
"""Files that one state names, of all mounts together; the mounts that have some to name share them."""
PATH_BYTES: Final = 512
REASON_BYTES: Final = 512
_CUT: Final = "…"


def bounded(mounts: Mapping[str, MountState]) -> dict[str, MountState]:
    """The same states with as many named files as fit, and with short names and reasons."""
    naming = [path for path, state in mounts.items() if _named(state)]
    if not naming:
        return dict(mounts)
    share, first = divmod(NAMED_FILES, len(naming))
    states = dict(mounts)
    for place, path in enumerate(naming):
        states[path] = _with_few(mounts[path], most=share + (place < first))
    return states


def _named(state: MountState) -> int:
    return len(state.failed) + (len(state.check.wrong) if state.check is not None else 0)


def _with_few(state: MountState, *, most: int) -> MountState:
    failed = tuple(_short(block) for block in state.failed[:most])
    check = state.check
    if check is not None and check.wrong:
        wrong = tuple(_short(block) for block in check.wrong[: most - len(failed)])
        check = msgspec.structs.replace(check, wrong=wrong)
    return msgspec.structs.replace(state, failed=failed, check=check)


def _short(failure: FileFailure) -> FileFailure:
    path, reason = cut(failure.path, most=PATH_BYTES), cut(failure.reason, most=REASON_BYTES)
    return FileFailure(path=path, code=failure.code, reason=reason)


def cut(text: str, *, most: int) -> str:
    """A text of so many bytes at most in UTF-8; one that was cut ends in an ellipsis."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT
