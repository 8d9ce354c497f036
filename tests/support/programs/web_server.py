"""A web server with files, as a test wants it to be: with or without ranges, ETags, HEAD, index pages, credentials and
redirections; and the API of the Hugging Face Hub over the same files."""

from __future__ import annotations

import hashlib
import html
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODIFIED = "Sun, 22 Nov 2026 10:00:00 GMT"
_REPOSITORY = re.compile(r"/(?:api/)?datasets/team/pictures/(?P<rest>.*)")


@dataclass(eq=False, kw_only=True)
class WebServer:
    """What the server has, and how it answers.

    Attributes:
        files: content by path, without a slash in front.
        ranges: whether it takes notice of Range.
        etags: whether it gives ETags; it gives Last-Modified in any case.
        head: whether it knows HEAD.
        credentials: the header Authorization that it wants; empty: none.
        redirects: where it sends readers to, by path; `{path}` in it is the path.
        large: of the Hub: files of so many bytes are kept at another host.
        large_host: URL of that.
        page: entries of a page of the Hub's API.
        asked: method, path and the headers of each request.
        host: the address at which it listens.
        sent: bytes of all contents that went out.
    """

    files: dict[str, bytes]
    ranges: bool = True
    etags: bool = True
    head: bool = True
    credentials: str = ""
    redirects: dict[str, str] = field(default_factory=dict)
    large: int = 1 << 60
    large_host: str = ""
    page: int = 3
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    sent: int = 0
    port: int = 0
    host: str = "127.0.0.1"

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def index(self, folder: str) -> bytes | None:
        """A page as nginx makes it of a folder, with the links by which Apache sorts; None where there is none."""
        below = [path.removeprefix(folder) for path in self.files if path.startswith(folder)]
        if not below and folder:
            return None
        names = sorted({path.partition("/")[0] + path.partition("/")[1] for path in below})
        links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a> 1-Jan\n' for name in names)
        text = f'<html><h1>Index</h1><a href="?C=N;O=D">Name</a><a href="../">../</a>\n{links}</html>'
        return text.encode()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        self.asked.append((request.command, request.path, dict(request.headers)))
        path = unquote(parts.path)
        if self.credentials and request.headers.get("Authorization", "") != self.credentials:
            _send(request, 401, b"who are you?")
        elif (target := self.redirects.get(path)) is not None:
            _send(request, 302, b"", {"Location": target})
        elif (repository := _REPOSITORY.fullmatch(path)) is not None:
            self._hub(request, path.startswith("/api/"), repository["rest"], parse_qs(parts.query))
        elif (content := self.files.get(path[1:])) is not None:
            self._file(request, content)
        elif path.endswith("/") and (page := self.index(path[1:])) is not None:
            _send(request, 200, page, {"Content-Type": "text/html"})
        else:
            _send(request, 404, b"<html><title>404 Not Found</title></html>")

    def _file(
        self, request: BaseHTTPRequestHandler, content: bytes, more: dict[str, str] | None = None
    ) -> None:
        if request.command == "HEAD" and not self.head:
            _send(request, 405, b"")
            return
        headers = {"Last-Modified": MODIFIED, **(more or {})}
        if self.etags:
            headers.setdefault("ETag", f'W/"{hashlib.md5(content).hexdigest()}"')  # noqa: S324 - as servers do
        byte_range = (
            re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", "")) if self.ranges else None
        )
        status = 200
        if byte_range is not None:
            begin, end = int(byte_range[1]), min(int(byte_range[2]), len(content) - 1)
            if begin >= len(content):
                _send(request, 416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
            content, status = content[begin : end + 1], 206
        self.sent += _send(request, status, content, headers)

    def _hub(
        self, request: BaseHTTPRequestHandler, api: bool, rest: str, query: dict[str, list[str]]
    ) -> None:
        if api and rest in ("revision/main", f"revision/{COMMIT}"):
            _send(request, 200, json.dumps({"sha": COMMIT}).encode())
        elif api and rest.startswith(f"tree/{COMMIT}"):
            prefix = rest.removeprefix(f"tree/{COMMIT}").lstrip("/")
            begin = int(query.get("cursor", ["0"])[0])
            entries = [self._entry(path) for path in sorted(self.files) if path.startswith(prefix)]
            more = {}
            if begin + self.page < len(entries):
                # As a mirror does that does not rewrite what the Hub says.
                url = f"https://huggingface.co/api/x?recursive=true&cursor={begin + self.page}"
                more["Link"] = f'<{url}>; rel="next"'
            _send(request, 200, json.dumps(entries[begin : begin + self.page]).encode(), more)
        elif not api and (path := _resolved(rest)) in self.files:
            content, entry = self.files[path], self._entry(path)
            tag = f'"{entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]}"'
            if "lfs" in entry:
                _send(request, 302, b"", {"Location": f"{self.large_host}/{path}", "X-Linked-ETag": tag})
            else:
                self._file(request, content, {"ETag": tag})
        else:
            _send(request, 404, b'{"error": "Repository not found"}')

    def _entry(self, path: str) -> dict[str, Any]:
        content = self.files[path]
        entry = {"type": "file", "path": path, "oid": git_id(content), "size": len(content)}
        if len(content) >= self.large:
            digest = hashlib.sha256(content).hexdigest()
            return {**entry, "lfs": {"oid": digest, "size": len(content), "pointerSize": 130}}
        return entry


def git_id(content: bytes) -> str:
    """What Git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - Git's own


def _resolved(rest: str) -> str:
    match_of_path = re.fullmatch(rf"resolve/(?:main|{COMMIT})/(.*)", rest)
    return match_of_path[1] if match_of_path is not None else ""


def _send(
    request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str] | None = None
) -> int:
    """Answer; the bytes of the content that the client took."""
    request.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    done = 0
    if request.command != "HEAD":
        for offset in range(0, len(content), 1 << 16):
            try:
                request.wfile.write(content[offset : offset + (1 << 16)])
            except OSError:
                break
            done += len(content[offset : offset + (1 << 16)])
    return done


@contextmanager
def web_server(server: WebServer) -> Iterator[WebServer]:
    """Have it serve at its host."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.answer(self)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            return

    running = ThreadingHTTPServer((server.host, 0), Handler)
    running.daemon_threads = True
    server.port = running.server_port
    threading.Thread(target=lambda: running.serve_forever(poll_interval=0.01), daemon=True).start()
    try:
        yield server
    finally:
        running.shutdown()
        running.server_close()
