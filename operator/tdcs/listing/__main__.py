"""`python -m tdcs.listing`: one listing. A request (JSON, one line) on the standard input, the answer on the output.

Each message on the output has its length before it; what it has so far may come before the answer.

It ends when its standard input does: whoever started it is gone then, or does not want the listing any more.
"""

import asyncio
import contextlib
import os
import resource
import sys
import threading
from pathlib import Path

import msgspec

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import FolderAgents
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import Early, Failed, Listed, Request, frame, source_of
from tdcs.model.cache_engine import EngineError
from tdcs.trust.contexts import Contexts


async def answer(request: Request) -> Listed | Failed:
    try:
        return await list_source(
            source=source_of(request.source),
            path=request.path,
            folder=ManifestFolder(Path(request.folder), confined=request.confined),
            limit=request.limit,
            agents=_agents(request),
            cut=request.cut,
            tell=_tell if request.early else None,
        )
    except EngineError as error:
        return Failed.of(error)
    except MemoryError:
        return Failed.of(
            EngineError(
                attempted=f"list {request.path}",
                reason=f"it takes more than {request.memory >> 20} MiB of memory",
                remedy="See whether names or pages of the source are unusually long; report it if they are not",
                path=request.path,
            )
        )


def _tell(so_far: Listed) -> None:
    _send(Early(listed=so_far))


def _send(message: Early | Listed | Failed) -> None:
    sys.stdout.buffer.write(frame(message))
    sys.stdout.buffer.flush()


def _agents(request: Request) -> FolderAgents:
    identity = request.identity
    return FolderAgents(
        urls=request.nodes,
        expected=request.expected,
        tls=Contexts(lambda: identity) if identity is not None else None,
    )


def _limit_memory(most: int) -> None:
    """Let this process fail, and no other one, when it allocates more."""
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    os.nice(10)  # whoever asked goes on working beside it
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=Request)
    _limit_memory(request.memory)
    threading.Thread(target=_end_with_input, daemon=True).start()
    _send(asyncio.run(answer(request)))


if __name__ == "__main__":
    main()
