"""An object store that lists any number of objects, which it makes up: `python countless_store.py HOST NAMES`.

A process of its own, so that what it needs is not counted as memory of a test. Prints its port.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE = 1000
ASKED = "/asked"
"""At this path it answers with how often it was asked for pages, for objects of one version, and for anything else."""
_NUMBER = b"%08d"
_MARK = b"@@@@@@@@"


def template() -> bytes:
    """A page as Amazon writes it, with a mark where its number comes."""
    row = (
        b"<Contents><Key>train/@@@@@@@@/%04d.jpg</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
        b"<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>100000</Size>"
        b"<StorageClass>STANDARD</StorageClass></Contents>"
    )
    return b"".join(row % number for number in range(PAGE))


def serve(host: str, names: int, *, port: int = 0) -> None:
    """Serve until the process is killed; without a port, at one that is free."""
    page, pages = template(), -(-names // PAGE)
    counts = {"pages": 0, "objects": 0, "others": 0}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            if parts.path == ASKED:
                self.answer(b"%d %d %d" % tuple(counts.values()))
                return
            kind = "pages" if "list-type" in query else "objects" if "If-Match" in self.headers else "others"
            counts[kind] += 1
            number = int(query.get("continuation-token", ["0"])[0])
            more = number + 1 < pages
            token = b"<NextContinuationToken>%d</NextContinuationToken>" % (number + 1) if more else b""
            self.answer(
                b"<ListBucketResult><IsTruncated>%s</IsTruncated>" % (b"true" if more else b"false")
                + page.replace(_MARK, _NUMBER % number)
                + token
                + b"</ListBucketResult>"
            )

        def do_HEAD(self) -> None:
            counts["others"] += 1
            self.answer(b"")

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer((host, port), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
