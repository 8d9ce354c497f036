"""What a store's answer to a request for a page says: that it may be asked again, or why there is no listing."""

from dataclasses import dataclass
from typing import Final

from tdcs.decide.error_document import StoreAnswer, read_answer
from tdcs.decide.source_rules import endpoint_field
from tdcs.decide.store_refusal import (
    BUSY_STATUSES,
    Cause,
    Meaning,
    StoreKind,
    judge,
    store_kind,
)
from tdcs.model.cache_engine import EngineError, KeysRefusedError, SourceError

_AGAIN: Final = BUSY_STATUSES | {500}
"""Statuses that pass: the store is busy, or a part of it is away."""
_AGAIN_CODES: Final = frozenset({"InternalError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRefusal:
    """An answer that is no page.

    Attributes:
        answer: what the store said, and the bucket's region where it names another one than it was asked in.
        retry_after: seconds for which the store asks not to be asked again.
        keyless: it was asked without keys.
        kind: of store, whose answer it is.
    """

    answer: StoreAnswer
    retry_after: float = 0.0
    keyless: bool = False
    kind: StoreKind = StoreKind.S3

    @property
    def meaning(self) -> Meaning:
        return judge(self.answer, keyless=self.keyless, kind=self.kind)

    @property
    def passes(self) -> bool:
        busy = self.answer.status in _AGAIN or self.answer.code in _AGAIN_CODES
        return busy or self.meaning.cause is Cause.BUSY


def kind_of(uri: str) -> StoreKind:
    """The kind of store that a source is in."""
    return store_kind(uri.partition("://")[0].lower())


def refusal(
    status: int,
    text: bytes,
    *,
    region: str = "",
    retry_after: str = "",
    keyless: bool = False,
    kind: StoreKind = StoreKind.S3,
) -> PageRefusal:
    """An answer by its status, the beginning of its text, and two of its headers."""
    return PageRefusal(
        keyless=keyless,
        kind=kind,
        answer=read_answer(status, text, region=region),
        retry_after=min(float(retry_after), 60.0) if retry_after.isdecimal() else 0.0,
    )


def error_of(refused: PageRefusal, *, attempted: str, path: str | None) -> EngineError:
    """Why there is no listing, and what to do.

    Args:
        attempted: what was tried, as a clause.
        path: of the mount.
    """
    reason, remedy = _explained(refused)
    kind = KeysRefusedError if refused.meaning.of_keys else SourceError
    return kind(
        attempted=attempted,
        reason=f"{reason} {refused.answer.said}",
        remedy=remedy[:1].upper() + remedy[1:],
        path=path,
        retryable=refused.passes,
    )


def _explained(refused: PageRefusal) -> tuple[str, str]:
    meaning = refused.meaning
    if refused.passes:
        return "the store is busy, or a part of it is away", "it is tried again; see the store if it goes on"
    if refused.keyless and meaning.of_keys:
        return meaning.reason, meaning.remedy
    if refused.kind is StoreKind.WEB:
        return meaning.reason, meaning.remedy or "check spec.source.uri and spec.source.options"
    match meaning.cause:
        case Cause.DENIED if refused.kind is StoreKind.S3:
            return "the source refused the credentials", (
                "check accessKeyId and secretAccessKey in the Secret of spec.source.secretRef, or the role of "
                "spec.source.serviceAccountName, and that their account may list the prefix (s3:ListBucket)"
            )
        case Cause.MISSING | Cause.NO_BUCKET:
            bucket = "container" if refused.kind is StoreKind.AZURE else "bucket"
            return f"there is no such {bucket}, or what answers at the endpoint is no object store", (
                "check the path in spec.source.uri, and host and port of spec.source.options.endpoint"
            )
        case Cause.KEYS:
            return "the source refused the credentials", meaning.remedy
        case Cause.CLOCK:
            return "the clocks of the operator's node and of the source's differ by too much", meaning.remedy
    if not meaning.remedy:
        subject = (
            "that the store knows ListObjectsV2"
            if refused.kind is StoreKind.S3
            else "what answers at the endpoint"
        )
        return "the store gives no listing", f"check spec.source, and {subject}"
    return meaning.reason, meaning.remedy


def no_answer(reason: str, *, uri: str, path: str | None) -> SourceError:
    """A store that does not answer, or ends its answers early."""
    return SourceError(
        attempted=f"list {uri}",
        reason=f"the endpoint gives no whole answer ({reason})",
        remedy=f"Check {_field(uri)}, and that the operator's pod and the cache's can reach it",
        path=path,
        retryable=True,
    )


def not_trusted(why: str, *, uri: str, path: str | None) -> SourceError:
    """A store with a certificate that is not trusted."""
    return SourceError(
        attempted=f"list {uri}",
        reason=f"the certificate of the endpoint is not trusted: {why}",
        remedy=f"Check the host in {_field(uri)}; an authority of your own is named in "
        "spec.sources[].caBundle of the CacheCluster",
        path=path,
        retryable=True,
    )


def _field(uri: str) -> str:
    return endpoint_field(uri.partition("://")[0])
