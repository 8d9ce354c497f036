"""A store that lists one bucket as S3 does: prefixes, delimiters, pages, keys to start after, any name. It gives the
objects, too, where a test says what they have."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote_from_bytes, unquote_to_bytes

from aiohttp import web

from tdcs.listening import at
from tdcs.model.cache_engine import Credentials, Source

KEYS = Credentials(access_key_id="AKIA", secret_access_key="s3cr3t")
TIME = "2026-11-22T10:00:00.000Z"

Answer = tuple[int, bytes]


@dataclass(eq=False, kw_only=True)
class BucketStore:
    """What the bucket has, and how the store lists it.

    Attributes:
        keys: names in order, as bytes.
        size: of the object of a name.
        etag: likewise, quotes included; None: the store gives none.
        spelled: whether it spells names as it is asked to (encoding-type=url).
        knows_start: whether it takes notice of start-after.
        shown: the order in which it lists the names of a page.
        failures: what it answers instead, by the number of the request; a number that is not here is answered.
        content: of the object of a name; None: there are names alone.
        most_names: of a page.
        before_page: awaited before each page of names is given; None: nothing holds it back.
        asked: the query of each request for names.
        given: how often the content of each object was asked for.
    """

    keys: list[bytes]
    size: Callable[[bytes], int] = lambda _: 5
    etag: Callable[[bytes], str | None] = lambda key: f'"{key.hex()[:32]}"'
    spelled: bool = True
    knows_start: bool = True
    shown: Callable[[list[bytes]], list[bytes]] = lambda keys: keys
    content: Callable[[bytes], bytes] | None = None
    failures: dict[int, Answer] = field(default_factory=dict)
    most_names: int = 1000
    before_page: Callable[[], Awaitable[None]] | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    given: Counter[bytes] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0
    port: int = 0
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self.keys.sort()

    @property
    def source(self) -> Source:
        options = {"endpoint": f"http://{at(self.host, self.port)}", "pathStyle": "true"}
        return Source(uri="s3://bucket/data", options=options, credentials=KEYS)

    async def answer(self, request: web.Request) -> web.Response:
        if self.content is not None and "list-type" not in request.query:
            return self._object(unquote_to_bytes(request.rel_url.raw_path).removeprefix(b"/bucket/"), request)
        self.asked.append(dict(request.query))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.before_page is not None:
                await self.before_page()
            failure = self.failures.pop(len(self.asked) - 1, None)
            status, text = failure if failure is not None else (200, self.page(request.query))
            return web.Response(status=status, body=text, content_type="application/xml")
        finally:
            self.at_once -= 1

    def _object(self, key: bytes, request: web.Request) -> web.Response:
        place = bisect.bisect_left(self.keys, key)
        if self.content is None or self.keys[place : place + 1] != [key]:
            return web.Response(status=404, body=b"<Error><Code>NoSuchKey</Code></Error>")
        self.given[key] += 1
        content, tag = self.content(key), self.etag(key)
        headers = {"ETag": tag} if tag is not None else {}
        if tag is not None and request.headers.get("If-Match", tag) != tag:
            return web.Response(status=412)
        headers["Last-Modified"] = "Sun, 22 Nov 2026 10:00:00 GMT"
        if (part := request.http_range) == slice(None, None, 1):
            return web.Response(body=content, headers=headers)
        first, last = part.start or 0, min(part.stop or len(content), len(content))
        headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(content)}"
        return web.Response(status=206, body=content[first:last], headers=headers)

    def page(self, asked: Mapping[str, str]) -> bytes:
        prefix, delimiter = asked.get("prefix", "").encode(), asked.get("delimiter", "").encode()
        after = bytes.fromhex(asked.get("continuation-token", ""))
        if not after and self.knows_start:
            after = asked.get("start-after", "").encode()
        url = self.spelled and asked.get("encoding-type") == "url"
        place = max(bisect.bisect_left(self.keys, prefix), bisect.bisect_right(self.keys, after))
        names: list[bytes] = []
        groups: list[bytes] = []
        last = b""
        while place < len(self.keys) and self.keys[place].startswith(prefix):
            if len(names) + len(groups) >= min(int(asked.get("max-keys", "1000")), self.most_names):
                break
            key = self.keys[place]
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end >= 0:
                groups.append(key[: end + 1])
                last = groups[-1] + b"\xff" * 8
                place = bisect.bisect_left(self.keys, last)
                continue
            names.append(key)
            last = key
            place += 1
        more = place < len(self.keys) and self.keys[place].startswith(prefix)
        return self._document(self.shown(names), groups, token=last.hex() if more else "", url=url)

    def _document(self, names: Iterable[bytes], groups: list[bytes], *, token: str, url: bool) -> bytes:
        spell = _spelled if url else _escaped
        listed = list(names)
        items = b"".join(self._item(key, spell(key)) for key in listed)
        items += b"".join(
            b"<CommonPrefixes><Prefix>%b</Prefix></CommonPrefixes>" % spell(group) for group in groups
        )
        return (
            b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            + b"<Name>bucket</Name><KeyCount>%d</KeyCount>" % (len(listed) + len(groups))
            + (b"<EncodingType>url</EncodingType>" if url else b"")
            + (b"<IsTruncated>%b</IsTruncated>" % (b"true" if token else b"false"))
            + (b"<NextContinuationToken>%b</NextContinuationToken>" % token.encode() if token else b"")
            + items
            + b"</ListBucketResult>"
        )

    def _item(self, key: bytes, spelled: bytes) -> bytes:
        etag = self.etag(key)
        tag = b"" if etag is None else b"<ETag>%b</ETag>" % etag.replace('"', "&quot;").encode()
        return (
            b"<Contents><Key>%b</Key><LastModified>%b</LastModified>%b<Size>%d</Size>"
            b"<StorageClass>STANDARD</StorageClass></Contents>"
        ) % (spelled, TIME.encode(), tag, self.size(key))


def _spelled(name: bytes) -> bytes:
    return quote_from_bytes(name, safe="/-_.*").replace("%20", "+").encode()


def _escaped(name: bytes) -> bytes:
    escaped = name.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
    return b"".join(b"&#%d;" % byte if byte < 32 else bytes([byte]) for byte in escaped)


@asynccontextmanager
async def serving(store: BucketStore) -> AsyncIterator[BucketStore]:
    app = web.Application()
    app.router.add_get("/{tail:.*}", store.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, store.host, 0)
    await site.start()
    store.port = runner.addresses[0][1]
    try:
        yield store
    finally:
        await runner.cleanup()
