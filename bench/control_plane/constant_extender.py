"""Extenders that decode nothing, for comparison with ours: what one HTTP call a pod costs, whatever Python does.

Without replies every request is answered with "no opinion". With replies, JSON from a dataset (`namespace/name`) to
the scores of its nodes, each is made once; a request is searched for its dataset's name, and the reply is sent as it
is. So pods land where our extender would have them, and kube-scheduler reads as much. From the root of the checkout::

    python bench/control_plane/constant_extender.py --port=8900 --replies=replies.json
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import uvloop

Answer = Callable[[bytearray], bytes]
"""From a request's body to that of the reply."""


class Constant(asyncio.Protocol):
    """Answers every request once it is complete; kube-scheduler sends one at a time over a connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """A part of a request came."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(body) >= length and self._transport is not None:
            self._received.clear()
            reply = self._answer(body)
            start = (
                f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n"
            )
            self._transport.write(start.encode() + reply)


def no_opinion(_: bytearray) -> bytes:
    """Scores nothing."""
    return b"[]"


def prepared(scores: Mapping[str, Mapping[str, int]]) -> Answer:
    """Replies made beforehand, by the dataset whose name a request has first."""
    replies = {
        dataset.encode(): json.dumps(
            [{"Host": node, "Score": score} for node, score in node_scores.items()]
        ).encode()
        for dataset, node_scores in scores.items()
    }
    # Longest first: of d1 and d12, the name that is there.
    expression = re.compile(b"|".join(re.escape(name) for name in sorted(replies, key=len, reverse=True)))

    def answer(body: bytearray) -> bytes:
        match = expression.search(body)
        return replies[bytes(match[0])] if match else b"[]"

    return answer


async def serve(port: int, answer: Answer) -> None:
    """Answer on loopback until the process ends."""
    server = await asyncio.get_running_loop().create_server(lambda: Constant(answer), "127.0.0.1", port)
    await server.serve_forever()


@click.command()
@click.option("--port", required=True, type=click.IntRange(1, 65535))
@click.option("--replies", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(port: int, replies: Path | None) -> None:
    """Be an extender that decodes nothing."""
    uvloop.run(serve(port, prepared(json.loads(replies.read_text())) if replies else no_opinion))


if __name__ == "__main__":
    main()
