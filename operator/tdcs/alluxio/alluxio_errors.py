"""From a failed RPC to the engine error that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from tdcs.alluxio.mount_properties import explain, plain_reason, refuses_keys
from tdcs.alluxio.rpc import RpcFailureError
from tdcs.model.cache_engine import EngineError, EngineUnavailableError, KeysRefusedError, SourceError


def engine_error(
    failure: RpcFailureError,
    *,
    attempted: str,
    process: str,
    path: str | None,
    worker: str | None,
    of_source: bool,
    secrets: Iterable[str],
) -> EngineError:
    """The error to raise instead of `failure`.

    Args:
        process: Who was called, for the case that it does not answer.
        of_source: Whether the source refused, and not Alluxio itself.
        secrets: What to hide in Alluxio's message.
    """
    away = failure.starting or failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
    kind: type[EngineError] = EngineError
    if away:
        kind = EngineUnavailableError
        if failure.distrusted:
            return kind(
                attempted=attempted,
                reason=f"{process} and this process do not believe each other's certificates "
                f"({plain_reason(failure.text)})",
                remedy="See the condition Trusted of the CacheCluster; while certificates are renewed it passes",
                path=path,
                worker=worker,
                retryable=True,
                secrets=secrets,
            )
        reason = f"{process} is away, starting or overloaded ({failure.code.name})"
        remedy = "Wait for its pod to be ready; see its log if it does not get there"
    elif of_source:
        kind = KeysRefusedError if refuses_keys(failure.text) else SourceError
        reason, remedy = explain(failure.text)
    else:
        reason, remedy = plain_reason(failure.text), "See the log of the cache's master"
    return kind(
        attempted=attempted,
        reason=reason,
        remedy=remedy,
        path=path,
        worker=worker,
        retryable=away,
        secrets=secrets,
    )
