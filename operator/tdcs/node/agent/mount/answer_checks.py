"""Is an answer of a store or a web server the piece of the file that was listed?"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from urllib3 import BaseHTTPResponse

from tdcs.model.file_ids import is_etag, same_etag
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, changed, listed_time, unanswered

_PART: Final = re.compile(r"bytes[ =]([0-9]{1,19})-[0-9]{1,19}/([0-9]{1,19}|[*])", re.IGNORECASE)
"""A Content-Range: where the part begins, and the size of the object, which may be `*`. Python makes no
number of thousands of digits."""


def wrong_part(extent: Extent, answer: BaseHTTPResponse, came: int) -> SourceFailureError | None:
    """Why the bytes that came cannot be the piece, whatever they are; None where they can."""
    content_range = answer.headers.get("Content-Range", "")
    part = _PART.fullmatch(content_range.strip())
    size = part[2] if part is not None and part[2] != "*" else ""
    if came != extent.length or (size and int(size) != extent.size):
        many = f"more than {extent.length}" if came > extent.length else str(came)
        return changed(f"{many} bytes came of {size or 'its'} bytes")
    whole = extent.length == extent.size
    begins = part is not None and int(part[1]) == extent.offset
    if begins or (whole and (answer.status == 200 or not content_range)):
        return None
    return unanswered("the source answers with another part than was asked for", status=answer.status)


def require_tag(extent: Extent, answered: str | None, *, compared: bool) -> None:
    """Refuse the bytes of another version. An ETag that is left out, or made weak on its way (RFC 9110, 8.8.3), says
    nothing against them where the store was to compare it. Where it was not, nothing else says that they are the right
    ones.

    Args:
        answered: the answer's ETag; empty or None where it has none.
        compared: whether the request named the listed ETag, as If-Match.

    Raises:
        SourceFailureError: the answer has another ETag than the listing, or should have one and has none.
    """
    if not is_etag(extent.tag):
        return
    if answered:
        if not same_etag(extent.tag, answered):
            raise changed("its ETag is another one")
    elif not compared:
        raise changed("its answers have no ETag")


def require_version(answered: str, version: str) -> None:
    """Refuse the bytes of another version, and of a store that takes no notice of versions."""
    if answered != version:
        raise changed("its version is another one" if answered else "its answers name no version")


def time_of(header: str) -> datetime | None:
    """A time in a header; None where it is none, which says as little as a header that is left out."""
    try:
        time = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def require_time(extent: Extent, answered: datetime) -> None:
    listed = listed_time(extent.tag)
    if listed is not None and int(answered.timestamp()) != listed // 1000:
        raise changed("its time is another one")
