"""What a store says in the document of an error: its code, its message, the region of its bucket.

The document is XML as S3 and Azure have it, JSON as Google and Azure have it, or plain text or HTML of something that
stands before the store.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

LONGEST_ANSWER: Final = 65_536
"""Bytes of an error's document that are looked at."""

_LONGEST_CODE: Final = 64
_LONGEST_MESSAGE: Final = 300

_LONGEST_TEXT: Final = 8192
"""Characters of a document that are searched, white space put together: the searches below may take a time that grows
with the square of a hostile text's length, and the process that searches has more to do."""

# All repetitions have a bound, for the same reason.
_CODE: Final = re.compile(
    r"<(?:\w{1,16}:)?Code(?:\s[^>]{0,99})?>([^<]{0,999}|\s?<!\[CDATA\[.{0,999}?\]\]>\s?)</(?:\w{1,16}:)?Code>",
    re.DOTALL,
)
_MESSAGE: Final = re.compile(
    r"<(?:\w{1,16}:)?Message(?:\s[^>]{0,99})?>([^<]{0,4000}|\s?<!\[CDATA\[.{0,4000}?\]\]>\s?)</(?:\w{1,16}:)?Message>",
    re.DOTALL,
)
_DETAIL: Final = re.compile(r"<AuthenticationErrorDetail>([^<]{0,2000})</AuthenticationErrorDetail>")
_NO_DETAIL: Final = re.compile(
    r"(?:The )?MAC signature|string to sign|[;,-]?\s*Current \[[^\]]{0,99}\]", re.IGNORECASE
)
"""What is not said of Azure's details: of a wrong signature the text that it is of, which is another one each time, and
the time of the answer."""
_REGION: Final = re.compile(r"<(?:\w{1,16}:)?Region(?:\s[^>]{0,99})?>\s?([a-z0-9-]{1,32})\s?</")
_EXPECTED_REGION: Final = re.compile(r"expecting '([a-z0-9-]{1,32})'")
_PLAIN_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_INVISIBLE: Final = re.compile(r"<(script|style|head)\b.*?</\1>", re.DOTALL | re.IGNORECASE)
_TAG: Final = re.compile(r"<[^>]*>")
_CDATA: Final = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_CHANGING: Final = re.compile(
    r"[;,]?\s*\b(?:Request|x-ms-request-|Host|Trace)[ -]?Id\s*[:=]\s*\S+|\bTime\s*:\s*\d{4}-\d\d-\d\dT\S+",
    re.IGNORECASE,
)
"""What is another one in each answer: equal failures would look different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    """An answer that is not what was asked for.

    Attributes:
        status: of HTTP; 0 where there was none.
        code: in the store's own words (`AccessDenied`); empty where it has none.
        message: its sentence for people, on one line; empty where it has none.
        region: the bucket's, where the store names one.
    """

    status: int
    code: str = ""
    message: str = ""
    region: str = ""

    @property
    def said(self) -> str:
        """What the store said, such as `(403): AccessDenied (Access Denied)`."""
        # No colon behind the code: what follows one behind such as InvalidAccessKeyId is taken for a secret.
        words = f"{self.code} ({self.message})" if self.code and self.message else self.code or self.message
        return f"({self.status})" + (f": {words}" if words else "")


def read_answer(status: int, document: str | bytes, *, region: str = "") -> StoreAnswer:
    """An answer by its status, the text of its document, and the region that its headers name."""
    begin = document[:LONGEST_ANSWER]
    whole = begin.decode("utf-8", "replace") if isinstance(begin, bytes) else begin
    text = _closed_up(whole)
    is_cut = len(document) >= LONGEST_ANSWER or len(text) > _LONGEST_TEXT
    text = text[:_LONGEST_TEXT]
    answer = _of_xml(status, text) or _of_json(status, text) or _of_text(status, text, is_cut=is_cut)
    plain = region if _PLAIN_REGION.fullmatch(region) else answer.region
    if not plain and (expected := _EXPECTED_REGION.search(answer.message)) is not None:
        plain = expected[1]
    return replace(answer, region=plain)


def _of_xml(status: int, text: str) -> StoreAnswer | None:
    code = _CODE.search(text)
    if code is None:
        return None
    message, region, detail = _MESSAGE.search(text), _REGION.search(text), _DETAIL.search(text)
    message_text = _unescaped(message[1]) if message is not None else ""
    if detail is not None:
        message_text = f"{_CHANGING.sub('', message_text)} {_NO_DETAIL.split(_unescaped(detail[1]))[0]}"
    return StoreAnswer(
        status=status,
        code=_short_code(_unescaped(code[1])),
        message=_sentence(message_text),
        region=region[1] if region is not None else "",
    )


def _of_json(status: int, text: str) -> StoreAnswer | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    inner = document.get("error", document)
    if isinstance(inner, str):
        return StoreAnswer(
            status=status,
            code=_short_code(inner),
            message=_sentence(_text(document.get("error_description") or document.get("message"))),
        )
    if not isinstance(inner, dict):
        return None
    details = inner.get("errors")
    first = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
    code = first.get("reason") or inner.get("code") or inner.get("Code") or inner.get("status")
    return StoreAnswer(
        status=status,
        code="" if str(code) == str(status) else _short_code(_text(code)),
        message=_sentence(_text(inner.get("message") or inner.get("Message"))),
    )


def _of_text(status: int, text: str, *, is_cut: bool) -> StoreAnswer:
    title = _TITLE.search(text)
    if title is not None:
        plain = title[1]
    else:
        plain = _TAG.sub(" ", _INVISIBLE.sub(" ", _without_last_word(text) if is_cut else text))
    return StoreAnswer(status=status, message=_sentence(html.unescape(plain)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _closed_up(text: str) -> str:
    """The text with one blank for all white space between two words."""
    return " ".join(text.split())


def _unescaped(text: str) -> str:
    plain = _CDATA.sub(lambda match: match[1], text)
    return html.unescape(plain) if plain == text else plain


def _line(text: str) -> str:
    return _closed_up("".join(character if character.isprintable() else " " for character in text))


def _short_code(text: str) -> str:
    """A code on one line; none where it is too long for one: secrets are found as a whole alone."""
    code = _line(text)
    return code if len(code) <= _LONGEST_CODE else ""


def _sentence(text: str) -> str:
    line = _line(_CHANGING.sub("", _closed_up(text))).rstrip(".")
    if len(line) <= _LONGEST_MESSAGE:
        return line
    return f"{_without_last_word(line[:_LONGEST_MESSAGE])} …".lstrip()


def _without_last_word(text: str) -> str:
    """A text that was cut, up to its last blank: the part of a secret that is left would not be known as one."""
    return text.rpartition(" ")[0]
