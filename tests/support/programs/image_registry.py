"""A container registry that serves OCI image layouts from folders, read only (the pull half of the OCI distribution
specification): the engine pulls from it as from any other."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_OBJECT = re.compile(r"/v2/(?P<image>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")


@contextmanager
def image_registry(layouts: Mapping[str, Path]) -> Iterator[str]:
    """Serve images by their names without a tag; gives the registry's address, such as 127.0.0.1:40123."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(layouts))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(layouts: Mapping[str, Path]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(content=False)

        def do_GET(self) -> None:
            self._answer(content=True)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

        def _answer(self, *, content: bool) -> None:
            if self.path == "/v2/":
                self._send(200, b"{}", media_type="application/json", content=content)
                return
            match = _OBJECT.fullmatch(self.path)
            folder = layouts.get(match["image"]) if match else None
            reference = match["reference"] if match else ""
            if folder is not None and not reference.startswith("sha256:"):
                reference = _digests_by_tag(folder).get(reference, "")
            blob = folder / "blobs" / reference.replace(":", "/") if folder and reference else None
            if blob is None or not blob.is_file():
                self._send(404, b'{"errors": [{"code": "NAME_UNKNOWN"}]}', content=content)
                return
            body = blob.read_bytes()
            media_type = "application/octet-stream"
            if match and match["kind"] == "manifests":
                media_type = json.loads(body)["mediaType"]
            self._send(200, body, media_type=media_type, digest=reference, content=content)

        def _send(
            self,
            status: int,
            body: bytes,
            *,
            media_type: str = "application/json",
            digest: str = "",
            content: bool,
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if content:
                self.wfile.write(body)

    return Handler


def _digests_by_tag(folder: Path) -> dict[str, str]:
    manifests = json.loads((folder / "index.json").read_bytes())["manifests"]
    return {entry["annotations"]["org.opencontainers.image.ref.name"]: entry["digest"] for entry in manifests}
