"""What a store's answer to a request for a page says: that it may be asked again, or why there is no listing."""

import re
from dataclasses import dataclass
from typing import Final

from tdcs.model.cache_engine import EngineError, KeysRefusedError, SourceError

_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that pass: the store is busy, or a part of it is away."""
_AGAIN_CODES: Final = frozenset({"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Busy"})
_KEYS: Final = frozenset({"ExpiredToken", "InvalidToken"})
"""What Amazon calls a bad request, and is a key that counts no more."""

LONGEST_ANSWER: Final = 65_536
"""Bytes of an answer without a listing that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is no page.

    Attributes:
        code: in the store's own words, as S3 has them; empty when it has none.
        region: the bucket's, where the store names another one than it was asked in.
        retry_after: seconds for which the store asks not to be asked again.
    """

    status: int
    code: str = ""
    region: str = ""
    retry_after: float = 0.0

    @property
    def passes(self) -> bool:
        return self.status in _AGAIN or self.code in _AGAIN_CODES

    @property
    def text(self) -> str:
        return f"{self.status} {self.code}".strip()


def refusal(status: int, text: bytes, *, region: str = "", retry_after: str = "") -> Refusal:
    """An answer by its status, the beginning of its text, and two of its headers."""
    code = _CODE.search(text)
    return Refusal(
        status=status,
        code=code[1].decode() if code else "",
        region=region if _REGION.fullmatch(region) else "",
        retry_after=min(float(retry_after), 60.0) if retry_after.isdecimal() else 0.0,
    )


def error_of(refused: Refusal, *, uri: str, path: str) -> EngineError:
    """Why there is no listing, and what to do."""
    attempted = f"list {uri}"
    reason, remedy = _explained(refused)
    keys = refused.code in _KEYS or (
        refused.status in (401, 403) and refused.code not in ("RequestTimeTooSkewed", "InvalidObjectState")
    )
    kind = KeysRefusedError if keys else SourceError
    return kind(
        attempted=attempted,
        reason=f"{reason} ({refused.text})",
        remedy=remedy,
        path=path,
        retryable=refused.passes,
    )


def _explained(refused: Refusal) -> tuple[str, str]:
    match refused.status, refused.code:
        case _, "RequestTimeTooSkewed":
            return "the clocks of the operator's node and of the source differ by too much", (
                "Have the node's clock set, as NTP does"
            )
        case _, "NoSuchBucket":
            return "there is no such bucket", "Check the bucket's name in spec.source.uri and the endpoint"
        case (401 | 403, _) | (_, "ExpiredToken" | "InvalidToken"):
            return "the source refused the credentials", (
                "Check accessKeyId and secretAccessKey in the Secret of spec.source.secretRef"
            )
        case 404, _:
            return "there is no such bucket, or what answers at the endpoint is no object store", (
                "Check the path in spec.source.uri, and host and port of spec.source.options.endpoint"
            )
        case (301 | 302 | 303 | 307 | 308, _) if not refused.region:
            return "the store sends its readers to another host, and nothing of the cache goes there", (
                "Name the address at which the store itself answers in spec.source.options.endpoint"
            )
        case _ if refused.region:
            return f"the bucket is in the region {refused.region}", (
                "Set spec.source.options.region to the bucket's region"
            )
        case _ if refused.passes:
            return (
                "the store is busy, or a part of it is away",
                "It is tried again; see the store if it goes on",
            )
    return "the store gives no listing", "Check spec.source, and that the store knows ListObjectsV2"


def no_answer(reason: str, *, uri: str, path: str) -> SourceError:
    """A store that does not answer, or ends its answers early."""
    return SourceError(
        attempted=f"list {uri}",
        reason=f"the endpoint gives no whole answer ({reason})",
        remedy="Check spec.source.options.endpoint, and that the operator's pod and the cache's can reach it",
        path=path,
        retryable=True,
    )
