"""What the remote-read client of a node says to the operator when a file can be read from nowhere."""

from __future__ import annotations

from typing import Final

import msgspec

READ_FAILURES_PATH: Final = "/v1/read-failures"
"""Of the operator's service: `POST` takes a `ReadFailure`."""


class ReadFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be read.

    Attributes:
        mount: path of the mount in the cache, `/datasets/<id>`.
        node: where it was to be read.
        path: of the file, relative to the mount.
        reason: why the agents and the source did not give it.
        stale: whether the source has another version of the file.
    """

    cluster: str
    mount: str
    node: str
    path: str
    reason: str
    stale: bool
