"""A page of a bucket's listing as files: the names as the store's bytes, whatever characters they have."""

import re
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from tdcs.listing.page_requests import PageError
from tdcs.model.file_ids import LONGEST_TAG, known_tag, plain_etag

_BEGIN: Final = b"<ListBucketResult"
_END: Final = b"</ListBucketResult>"
_ITEM: Final = b"<Contents>"
_KEY: Final = re.compile(rb"<Key>([^<]*)</Key>")
_SIZE: Final = re.compile(rb"<Size>(\d{1,19})</Size>")
_TAG: Final = re.compile(rb"<ETag>([^<]*)</ETag>")
_USUAL_TAG: Final = re.compile(rb'(?:&quot;|&#34;|")([0-9a-fA-F-]{1,100})(?:&quot;|&#34;|")')
_TIME: Final = re.compile(rb"<LastModified>([^<]{1,40})</LastModified>")
_PREFIX: Final = re.compile(rb"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>")
_COUNT: Final = re.compile(rb"<KeyCount>(\d{1,9})</KeyCount>")
_TOKEN: Final = re.compile(rb"<NextContinuationToken>([^<]{1,8192})</NextContinuationToken>")
_MORE: Final = re.compile(rb"<IsTruncated>\s*true\s*</IsTruncated>")
_ENCODED: Final = b"<EncodingType>url</EncodingType>"
_REPLACED: Final = b"\xef\xbf\xbd"
"""U+FFFD, which a store writes for what it cannot."""
_ENTITY: Final = re.compile(rb"&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos));")
_ENTITIES: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


class NamedFile(NamedTuple):
    """A file of a listing: its key below the source's prefix, its length, and its tag as a manifest has it."""

    path: bytes
    length: int
    tag: bytes


class ListedPage:
    """The sink of a page (`tdcs.listing.page_requests.PageSink`).

    Args:
        prefix: what all keys begin with; paths follow behind it.
        by_time: whether ETags say nothing, so that the time of its last change tells what a file is.

    Attributes:
        files: without those that stand for folders.
        folders: prefixes that the store has grouped names by, whole.
        first, last: keys of the page, empty when it has none.
        in_order: whether its keys ascend, as S3 promises.
        has_versions: whether an object of it is one of several versions, where these are asked for.
        unspelled: paths that stand for other ones: the store's XML cannot hold a character of them, and it does not
            spell names as it is asked to.
    """

    def __init__(self, prefix: bytes, *, by_time: bool = False) -> None:
        self.files: list[NamedFile] = []
        self.folders: list[bytes] = []
        self.first = self.last = b""
        self.in_order = True
        self.has_versions = False
        self.unspelled: list[bytes] = []
        self._prefix: Final = prefix
        self._by_time: Final = by_time
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self._parts.append(part)

    def finish(self) -> str:
        text = self.taken()
        if not text.rstrip().endswith(_END) or _BEGIN not in text:
            raise PageError("a page was cut off")
        encoded = _ENCODED in text
        plain = url_decoded if encoded else unescaped
        items = text.count(_ITEM)
        keys = [plain(key) for key in _KEY.findall(text)]
        sizes = [int(size) for size in _SIZE.findall(text)]
        self.folders = [plain(folder) for folder in _PREFIX.findall(text)]
        if not len(keys) == len(sizes) == items:
            raise PageError(f"a page of {items} objects has {len(keys)} names and {len(sizes)} lengths")
        count = _COUNT.search(text)
        if count is not None and int(count[1]) > items + len(self.folders):
            raise PageError(f"a page that says that it names {int(count[1])} objects has {items}")
        self.take(keys, sizes, _tags(text, items, by_time=self._by_time))
        if not encoded and _REPLACED in text:
            self.unspelled = [file.path for file in self.files if _REPLACED in file.path]
            self.files = [file for file in self.files if _REPLACED not in file.path]
        token = _TOKEN.search(text)
        if token is None and _MORE.search(text):
            raise PageError("a page that is not the last names no next one")
        return unescaped(token[1]).decode("utf-8", "replace") if token is not None else ""

    def taken(self) -> bytes:
        """The text that has come, which is not kept any longer."""
        text, self._parts = b"".join(self._parts), []
        return text

    def take(self, keys: list[bytes], sizes: list[int], tags: list[bytes]) -> None:
        """Take in the objects of the page; raises PageError."""
        begin, length = self._prefix, len(self._prefix)
        for key, size, tag in zip(keys, sizes, tags, strict=True):
            if not key.startswith(begin):
                raise PageError("a page names an object that is not below what was asked for")
            if not size and (key.endswith(b"/") or len(key) == length):
                continue  # consoles make these for folders
            self.files.append(NamedFile(key[length:], size, tag))
        if keys:
            self.first, self.last = keys[0], keys[-1]
            self.in_order = all(map(bytes.__lt__, keys, keys[1:]))


def _tags(text: bytes, items: int, *, by_time: bool) -> list[bytes]:
    """The tag of each object of a page: its ETag, else the time of its last change, else nothing."""
    etags = _TAG.findall(text)
    if not by_time and len(etags) == items and all(tags := [_tag(etag) for etag in etags]):
        return tags
    tags = []
    for item in text.split(_ITEM)[1:]:
        etag, time = None if by_time else _TAG.search(item), _TIME.search(item)
        tags.append((_tag(etag[1]) if etag else b"") or (_time_tag(time[1]) if time else b""))
    return tags


def _tag(etag: bytes) -> bytes:
    if (
        usual := _USUAL_TAG.fullmatch(etag)
    ) is not None:  # as nearly all are: a listing of millions pays for each
        return b'"%b"' % usual[1]
    plain = plain_etag(unescaped(etag).decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    if len(plain) <= LONGEST_TAG:
        return plain
    return known_tag(plain.decode("utf-8", "replace")).encode()


def _time_tag(text: bytes) -> bytes:
    try:
        time = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return b""
    return b"mtime-ms:%d" % round(time.timestamp() * 1000)


def url_decoded(text: bytes) -> bytes:
    """A name in the form in which stores spell what XML cannot hold: spaces may be plus signs."""
    return unquote_to_bytes(text.replace(b"+", b" ")) if b"%" in text or b"+" in text else text


def unescaped(text: bytes) -> bytes:
    """A text of a document; character references stand for what they name, control characters included."""
    return _ENTITY.sub(_character, text) if b"&" in text else text


def _character(reference: re.Match[bytes]) -> bytes:
    decimal, hexadecimal, name = reference.groups()
    if name is not None:
        return _ENTITIES[name]
    code = int(decimal) if decimal is not None else int(hexadecimal, 16)
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else reference[0]
