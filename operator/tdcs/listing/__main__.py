"""`python -m tdcs.listing`: one listing. A request (JSON, one line) on the standard input, the answer on the output.

It ends when its standard input does: whoever started it is gone then, or does not want the listing any more.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path

import msgspec

from tdcs.alluxio import AlluxioEngine
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import list_mount
from tdcs.listing.result import Failed, Listed, Request
from tdcs.model.cache_engine import EngineError


async def answer(request: Request) -> Listed | Failed:
    identity = request.identity
    async with AlluxioEngine(
        master=request.master,
        patience=request.patience,
        identify=(lambda: identity) if identity is not None else None,
    ) as engine:
        try:
            return await list_mount(
                engine=engine,
                path=request.path,
                refresh=request.refresh,
                limit=request.limit,
                folder=ManifestFolder(Path(request.folder), confined=request.confined),
            )
        except EngineError as error:
            return Failed.of(error)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    os.nice(10)  # whoever asked goes on working beside it
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=Request)
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.buffer.write(msgspec.msgpack.encode(asyncio.run(answer(request))))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
