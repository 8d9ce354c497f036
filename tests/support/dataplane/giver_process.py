"""The process of a `Giver`: an agent's block service over a tier's folder, and nothing else of an agent.

    python -m tests.support.dataplane.giver_process FOLDER PORT SOURCE TRUST [HOST]

It is started with most tests of readers, and imports only what it needs: to import the rest of an agent takes longer
than most of them read.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import msgspec

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.peer_book import Patience
from tdcs.node.agent.mount.source_state import SourceState
from tdcs.node.agent.transfer.source_relay import SourceRelay
from tdcs.node.wire.frames import News
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import TrustFolder


def serve_blocks(tier: Path, port: int, *, source: str, trust: str, host: str = "127.0.0.1") -> None:
    """An agent's block service over a tier's folder; with `source` (a `SourceAccess` in JSON) it reads for others, with
    `trust` (a folder with a certificate) it speaks TLS."""
    disk = Disk(tier)
    disk.prepare()
    read_source = None
    if source:
        state = SourceState(path="", patience=Patience(), lock=threading.RLock(), clock=time.monotonic)
        state.assign(msgspec.json.decode(source, type=SourceAccess))
        relay = SourceRelay(source=lambda _: state, stopped=threading.Event())
        read_source = relay.read
    service = BlockService(
        disk=disk,
        feed=lambda *_: News(1, 0, ()),
        read_source=read_source,
        tls=Contexts(TrustFolder(Path(trust))).server if trust else None,
    )
    service.start(host=host, port=port)


if __name__ == "__main__":
    folder, port, source, trust, *host = sys.argv[1:]
    serve_blocks(Path(folder), int(port), source=source, trust=trust, host=(host or ["127.0.0.1"])[0])
    threading.Event().wait()
