"""What nodes say to the operator of reads: files that can be read from nowhere, and how long reads of pods waited."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

READ_FAILURES_PATH: Final = "/v1/read-failures"
"""Of the operator's service: `POST` takes a `ReadFailure`."""

READ_WAITS_PATH: Final = "/v1/read-waits"
"""Of the operator's service: `POST` takes a `ReadWaits`."""


MOST_SECONDS: Final = 1e9

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=MOST_SECONDS)]
Uid = Annotated[str, msgspec.Meta(max_length=64)]
NodeName = Annotated[str, msgspec.Meta(max_length=253)]


class PodReadWaits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the reads of a pod have waited so far. Each report says it from the beginning.

    Attributes:
        pod: its uid.
        seconds: in which it was observed: from its first read, or from its beginning where `disk` is known.
        peer: seconds in which at least one of its reads waited for another node.
        source: the same, for the source.
        disk: seconds in which the kernel says that some process of the pod waited for files, less the two above; None
            where the kernel does not say it for each pod.
        loop_seconds: in which training loops of its processes were watched (`tdcs_train.loader.watch`), summed over the
            processes; None where none was.
        loop_waited: of these, seconds in which they waited for their next batch.
    """

    pod: Uid
    seconds: Seconds
    peer: Seconds = 0.0
    source: Seconds = 0.0
    disk: Seconds | None = None
    loop_seconds: Seconds | None = None
    loop_waited: Seconds = 0.0


class ReadWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Those pods of a node of which there is news."""

    node: NodeName
    pods: tuple[PodReadWaits, ...] = ()


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
