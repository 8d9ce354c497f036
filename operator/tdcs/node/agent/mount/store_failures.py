"""What a store, or the way to it, has answered to a request for an object, as failures of files and sources."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

from urllib3.exceptions import (
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as HttpTimeoutError

from tdcs.decide.error_document import LONGEST_ANSWER, StoreAnswer, read_answer
from tdcs.decide.store_refusal import Cause, Meaning, StoreKind, judge
from tdcs.engine.tls_failures import explain_certificate
from tdcs.model.agent_state import FailureCode
from tdcs.model.redaction import redact
from tdcs.node.agent.mount.source_pieces import SourceFailureError, changed, unanswered

_ANSWER: Final = re.compile(
    r" - Server returned non-2xx status code: (\d{3})[^:\n]*:? ?(.*?)(?:\n\nDebug source:|$)", re.DOTALL
)
"""What a store has answered, in an error of the client library: the status, and its document. The address and the
file's name stand before it, and may have any digits and words."""
_DEBUG: Final = "\n\nDebug source:"
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*)?(\w+)")
_OS_MESSAGE: Final = re.compile(r'message: "([^"]{1,100})"')
_HIDDEN: Final = re.compile(r'Received redirect without LOCATION|"dns error"|Content-Length Header missing')
"""Errors of the client library behind which a store's answer may stand that it does not show: of a redirection, which
the proxy that is not there ends, and of an answer without a length."""

_CODES: Final[dict[Cause, FailureCode]] = {
    Cause.MISSING: "Missing",
    Cause.CHANGED: "Changed",
    Cause.SHORTER: "Changed",
    Cause.NAME: "BadName",
    Cause.NO_BUCKET: "SourceAway",
    Cause.BUSY: "SourceAway",
    Cause.SILENT: "SourceAway",
}
_OF_ONE_FILE: Final = frozenset({Cause.MISSING, Cause.CHANGED, Cause.SHORTER, Cause.NAME})


class StoreRefusalError(SourceFailureError):
    """A store has answered with an error.

    Attributes:
        answer: what it said.
        meaning: what that means.
    """

    def __init__(
        self, answer: StoreAnswer, *, secrets: Sequence[str], kind: StoreKind = StoreKind.S3
    ) -> None:
        meaning = judge(answer, keyless=not any(secrets), kind=kind)
        super().__init__(
            _CODES.get(meaning.cause, "Denied"),
            redact(text=_text(answer, meaning), secrets=secrets),
            common=meaning.cause not in _OF_ONE_FILE,
            busy=meaning.cause is Cause.BUSY,
        )
        self.answer = answer
        self.meaning = meaning


def _text(answer: StoreAnswer, meaning: Meaning) -> str:
    if meaning.cause is Cause.CHANGED:
        return str(changed(f"its ETag is another one ({answer.status})"))
    return f"{meaning.reason} {answer.said}" + (f"; {meaning.remedy}" if meaning.remedy else "")


def client_failure(error: Exception, *, secrets: Sequence[str]) -> SourceFailureError:
    """The failure for an error of the client library."""
    text = str(error)
    answer = _ANSWER.search(text)
    if answer is not None:
        return StoreRefusalError(read_answer(int(answer[1]), answer[2][:LONGEST_ANSWER]), secrets=secrets)
    debug = text.partition(_DEBUG)[2]
    if (certificate := _CERTIFICATE.search(debug)) is not None:
        return not_trusted(explain_certificate(certificate[1]))
    message = _OS_MESSAGE.search(debug)
    if '"dns error"' in debug:
        why = "its host has no address"
    elif message is not None:
        why = message[1]
    elif "TimedOut" in debug:
        why = "it takes too long"
    else:
        why = text.partition("\n")[0].rpartition(" - ")[2]
    return unanswered(redact(text=f"the source does not answer: {why}", secrets=secrets))


def hides_answer(error: Exception) -> bool:
    """Whether a store's answer may stand behind an error of the client library, which another request would show."""
    return _HIDDEN.search(str(error)) is not None


def has_no_length(error: Exception) -> bool:
    """Whether an answer came without its length, as one has that is unpacked on its way."""
    return "Content-Length Header missing" in str(error)


def http_failure(error: HTTPError) -> SourceFailureError:
    """The failure for a request without the client library that got no answer."""
    cause: BaseException | None = error.reason if isinstance(error, MaxRetryError) else error
    if isinstance(cause, SSLError):
        inner = cause.args[0] if cause.args else cause
        if isinstance(inner, ssl.SSLCertVerificationError):
            return not_trusted(explain_certificate(inner.verify_message or str(inner)))
        return unanswered(
            f"the source does not answer: its TLS fails ({getattr(inner, 'reason', None) or inner})"
        )
    if isinstance(cause, ProxyError):
        why = " ".join(str(cause.original_error).split())[:100]
        return unanswered(
            f"the source does not answer: the proxy of its rule (spec.sources[].proxy) says {why}"
        )
    if isinstance(cause, NameResolutionError):
        return unanswered("the source does not answer: its host has no address")
    if isinstance(cause, HttpTimeoutError):
        return unanswered("the source does not answer: it takes too long")
    if isinstance(cause, NewConnectionError):
        reason = str(cause).rpartition("] ")[2] or "no connection"
        return unanswered(f"the source does not answer: {reason}")
    return unanswered(f"the source does not answer: {type(cause).__name__}")


def not_trusted(why: str) -> SourceFailureError:
    """The failure of a source whose certificate is refused: it is known to concern all files."""
    return SourceFailureError(
        "SourceAway",
        f"the source's certificate is not trusted: {why}. Check the host in spec.source.options.endpoint; an authority "
        "of your own is named in spec.sources[].caBundle of the CacheCluster",
        common=True,
        certain=True,
    )
