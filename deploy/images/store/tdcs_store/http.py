"""HTTP around :class:`tdcs_store.control.Control`."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .buckets import BucketError, summary
from .control import Control, Json, NotReady, metrics


def serve(*, control: Control, listen: tuple[str, int]) -> None:
    """Serve until the process ends."""
    threading.Thread(target=control.keep_counting, args=(lambda: False,), daemon=True).start()

    ThreadingHTTPServer(listen, handler(control)).serve_forever()


def handler(control: Control) -> type[BaseHTTPRequestHandler]:
    """What answers requests with the operations of this control."""

    class Handler(_Handler):
        operations = control

    return Handler


class Body(io.RawIOBase):
    """The body of a request, of a known length or chunked; reads end where it ends."""

    def __init__(self, *, stream: Any, length: int | None) -> None:
        self._stream = stream
        self._chunked = length is None
        self._remaining = length or 0
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._chunked and not self._remaining and not self._ended:
            self._next_chunk()
        data: bytes = self._stream.read(min(len(buffer), self._remaining))
        if self._remaining and not data:
            raise BucketError("the body of the request ended too early: send it again")
        buffer[: len(data)] = data
        self._remaining -= len(data)
        if self._chunked and data and not self._remaining:
            self._stream.readline()
        return len(data)

    def _next_chunk(self) -> None:
        self._remaining = int(self._stream.readline().split(b";")[0], 16)
        if not self._remaining:
            self._ended = True
            while self._stream.readline().strip():  # trailers
                pass


class _Handler(BaseHTTPRequestHandler):
    operations: Control
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _get(self, words: list[str], _query: dict[str, list[str]]) -> tuple[int, Json | str]:
        match words:
            case ["healthz"]:
                return (
                    (200, "ok\n")
                    if self.operations.healthy()
                    else (503, "the link or the gateway is not ready\n")
                )
            case ["metrics"]:
                return 200, metrics(self.operations.status())
            case ["v1", "status"]:
                return 200, self.operations.status()
            case ["v1", "datasets", bucket, *rest] if rest in ([], ["manifest"]):
                manifest = self.operations.buckets.manifest(bucket)
                if manifest is None:
                    return 404, _failure(404, f"bucket {bucket} has not been filled: fill it first")
                if rest:
                    return 200, manifest
                whole = self.operations.buckets.holds(bucket, manifest["parameters"]) is not None
                return 200, {**summary(manifest), "whole": whole}
        return 404, _failure(404, f"there is nothing at {self.path}")

    def _post(self, words: list[str], query: dict[str, list[str]]) -> tuple[int, Json | str]:
        body = io.BufferedReader(Body(stream=self.rfile, length=self._length()))
        match words:
            case ["v1", "link"]:
                return 200, self.operations.set_link(json.load(body))
            case ["v1", "datasets", bucket]:
                return 200, self.operations.fill(bucket, json.load(body))
            case ["v1", "datasets", bucket, "archive"]:
                filled = self.operations.fill_archive(
                    bucket,
                    parameters=json.loads(query.get("parameters", ["{}"])[0]),
                    sha256=query.get("sha256", [""])[0],
                    archive=body,
                )
                return 200, filled
        return 404, _failure(404, f"there is nothing at {self.path}")

    def _delete(self, words: list[str], _query: dict[str, list[str]]) -> tuple[int, Json | str]:
        match words:
            case ["v1", "datasets", bucket]:
                removed = self.operations.remove(bucket)
                if removed is None:
                    return 404, _failure(
                        404, f"bucket {bucket} has not been filled: there is nothing to remove"
                    )
                return 200, removed
        return 404, _failure(404, f"there is nothing at {self.path}")

    def _length(self) -> int | None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return None
        return int(self.headers.get("Content-Length") or 0)

    def _answer(self, operation: Any) -> None:
        url = urlsplit(self.path)
        words = [word for word in url.path.split("/") if word]
        code: int
        reply: Json | str
        try:
            code, reply = operation(words, parse_qs(url.query))
        except (BucketError, ValueError) as error:
            code, reply = 400, _failure(400, str(error))
        except (NotReady, OSError) as error:
            code, reply = 503, _failure(503, str(error))
        if code >= 400:
            self.close_connection = True  # a body may be left unread
        body = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(reply, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        if self.command != "GET":
            super().log_request(code, size)  # type: ignore[arg-type]


def _failure(code: int, message: str) -> Json:
    """An error as the API server would tell it, because kubectl shows the message of such a one only."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": code,
    }
