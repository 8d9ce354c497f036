"""The local web page of `tdcs ui`: HTTP on loopback, for one person, with that person's rights.

Whoever can reach the port could read the cluster with these rights, other users of the machine too. So the address
has a secret in it, which the first page turns into a cookie; a Host that is not loopback is refused, so that no other
web site can lead a browser here; and nothing can be changed through it.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web

from tdcs.cli.live.document import Document, changes, document
from tdcs.cli.live.watches import Watches

COOKIE: Final = "tdcs-ui"
PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{source_kind}-src 'self'" for source_kind in ("script", "style", "connect")),
        "img-src 'self' data:",
        *(f"{policy} 'none'" for policy in ("base-uri", "form-action", "frame-ancestors")),
    )
)
"""Nothing from elsewhere, and nothing to elsewhere."""

PAUSE_SECONDS: Final = 0.25
"""Between two messages to a page, so that a burst of changes is one message."""

ALIVE_SECONDS: Final = 5.0
"""A page that hears nothing for longer knows that this program is gone."""


class LiveServer:
    """The application. `title`: what is looked at, for the head of the page."""

    def __init__(self, *, title: str) -> None:
        self.token: Final = secrets.token_urlsafe(24)
        self._title: Final = title
        self._watches: Watches | None = None
        self._changed = asyncio.Event()
        self._document: Document = {}
        self._stale = True
        self._pages: Final = {
            path: (files("tdcs.cli.live") / "page" / name).read_bytes() for path, (name, _) in PAGES.items()
        }

    def watch(self, watches: Watches) -> None:
        self._watches = watches

    def touch(self) -> None:
        self._stale = True
        self._changed.set()
        self._changed = asyncio.Event()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        for path in PAGES:
            app.router.add_get(path, self._page)
        app.router.add_get("/events", self._events)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.url.host not in {"127.0.0.1", "localhost", "::1"}:
            raise web.HTTPForbidden(text="this page is for this machine alone\n")
        token = request.query.get("token")
        if token is not None and _is_same(token, self.token):
            page = web.HTTPSeeOther("/")
            page.set_cookie(COOKIE, self.token, httponly=True, samesite="Lax", path="/")
            raise page
        if not _is_same(request.cookies.get(COOKIE, ""), self.token):
            raise web.HTTPForbidden(
                text="open the address that tdcs ui printed: it has the key to this page\n"
            )
        response: web.StreamResponse = await handler(request)
        return response

    async def _page(self, request: web.Request) -> web.Response:
        headers = {
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        content_type = PAGES[request.path][1]
        return web.Response(
            body=self._pages[request.path], content_type=content_type, charset="utf-8", headers=headers
        )

    async def _events(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError, ConnectionError):
            async for event in self._messages():
                await response.write(event)
        return response

    async def _messages(self) -> AsyncIterator[bytes]:
        """Everything first, then what changes; and a sign of life where nothing does."""
        document_before: Document = {}
        first = True
        while True:
            changed = self._changed
            now = self._now()
            different = changes(document_before, now)
            document_before = now
            if first or different:
                yield _event("rows", {"first": first, "rows": different})
            first = False
            yield _event("contact", self._contact())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), ALIVE_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)

    def _now(self) -> Document:
        """The document as it is now; made once for all pages."""
        if self._stale and self._watches is not None:
            self._stale = False
            self._document = document(self._watches.world())
        return self._document

    def _contact(self) -> dict[str, object]:
        contact = self._watches.contact if self._watches is not None else None
        return {
            "title": self._title,
            "lostSince": contact.lost_since if contact else 0,
            "problem": contact.problem if contact else "",
            "settled": self._watches is not None and self._watches.is_settled(),
        }


def _is_same(token: str, secret: str) -> bool:
    return hmac.compare_digest(token.encode(), secret.encode())


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
