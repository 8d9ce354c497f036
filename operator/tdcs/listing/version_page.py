"""A page of the versions of a bucket's objects, of which each object has the one that it had at a time."""

import re
from datetime import UTC, datetime
from typing import Final

from tdcs.listing.listed_page import ListedPage, unescaped, url_decoded
from tdcs.listing.page_requests import PageError
from tdcs.model.file_ids import known_tag, plain_etag, version_tag

_BEGIN: Final = b"<ListVersionsResult"
_END: Final = b"</ListVersionsResult>"
_ITEM: Final = re.compile(rb"<(Version|DeleteMarker)>(.*?)</\1>", re.DOTALL)
_KEY: Final = re.compile(rb"<Key>([^<]*)</Key>")
_ID: Final = re.compile(rb"<VersionId>([^<]{1,1024})</VersionId>")
_TIME: Final = re.compile(rb"<LastModified>([^<]{1,40})</LastModified>")
_SIZE: Final = re.compile(rb"<Size>(\d{1,19})</Size>")
_TAG: Final = re.compile(rb"<ETag>([^<]*)</ETag>")
_MORE: Final = re.compile(rb"<IsTruncated>\s*true\s*</IsTruncated>")
_NEXT_KEY: Final = re.compile(rb"<NextKeyMarker>([^<]*)</NextKeyMarker>")
_NEXT_ID: Final = re.compile(rb"<NextVersionIdMarker>([^<]{0,1024})</NextVersionIdMarker>")
_LATEST: Final = b"<IsLatest>true</IsLatest>"
_ENCODED: Final = b"<EncodingType>url</EncodingType>"
_WITHOUT_ID: Final = b"null"
"""What was written before the bucket kept versions, or while it kept none."""


class VersionPage(ListedPage):
    """The sink of a page. A token is a key and a version, behind which the next page begins; without a version behind
    all those of the key.

    Args:
        as_of: which version of each object is taken: the last one that had been written by then.
    """

    def __init__(self, prefix: bytes, *, as_of: datetime) -> None:
        super().__init__(prefix)
        self._as_of: Final = as_of

    def finish(self) -> str:
        text = self.taken()
        if not text.rstrip().endswith(_END) or _BEGIN not in text:
            raise PageError("a page names no versions of objects, or was cut off")
        plain = url_decoded if _ENCODED in text else unescaped
        chosen = dict[bytes, tuple[datetime, bool, bool, bytes]]()
        for kind, item in _ITEM.findall(text):
            key, time, version = _KEY.search(item), _TIME.search(item), _ID.search(item)
            if key is None or time is None:
                raise PageError("a version of a page has no name or no time")
            self.has_versions |= version is not None and version[1] != _WITHOUT_ID
            written, is_latest = _time(time[1]), _LATEST in item
            if written > self._as_of:
                continue
            name = plain(key[1])
            # The first of equal ones: stores name the last one that was written first, but some the markers before all.
            if name not in chosen or (written, is_latest) > chosen[name][:2]:
                chosen[name] = (written, is_latest, kind == b"Version", item)
        keys, sizes, tags = list[bytes](), list[int](), list[bytes]()
        for name, (_, _, is_there, item) in sorted(chosen.items()):
            if not is_there:
                continue
            size = _SIZE.search(item)
            if size is None:
                raise PageError("a version of a page has no length")
            keys.append(name)
            sizes.append(int(size[1]))
            tags.append(_tag(item))
        self.take(keys, sizes, tags)
        if not _MORE.search(text):
            return ""
        last, version = _NEXT_KEY.search(text), _NEXT_ID.search(text)
        if last is None:
            raise PageError("a page that is not the last names no next one")
        marker = plain(last[1])
        # Of an object that is decided all further versions are passed over.
        behind = unescaped(version[1]) if version is not None and marker not in chosen else b""
        return f"{marker.decode()}\0{behind.decode()}"


def _tag(item: bytes) -> bytes:
    """The version, which stays what it is, or, without one, the ETag of what the object is."""
    version, etag = _ID.search(item), _TAG.search(item)
    if version is not None and version[1] != _WITHOUT_ID:
        try:
            return version_tag(unescaped(version[1]).decode()).encode()
        except ValueError as error:
            raise PageError(str(error)) from error
    if etag is None:
        raise PageError("an object has neither a version nor an ETag")
    return known_tag(plain_etag(unescaped(etag[1]).decode("utf-8", "replace"))).encode()


def _time(text: bytes) -> datetime:
    try:
        time = datetime.fromisoformat(text.decode("ascii"))
    except ValueError as error:
        raise PageError("the time of a version is none") from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
