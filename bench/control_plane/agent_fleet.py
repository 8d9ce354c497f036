"""Hundreds of agents in one process, behind the real protocol: requests over HTTP, long polls, msgpack.

An agent carries out an assignment at once, of mounts of which there are only sums, and of those with a real manifest.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import listed
from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS, AgentState, Assignment, MountState, PartState, echo_of
from tdcs.model.manifest_format import Totals

SIZE = 110_000
"""Bytes of a file."""


def digest_of(number: int) -> str:
    """The digest of a mount's manifest, of which there are only sums."""
    return hashlib.sha256(f"mount {number}".encode()).hexdigest()[:32]


def totals_of(files: int) -> Totals:
    """Sums over as many files of one block each."""
    counts = np.full(slots.SLOTS, files // slots.SLOTS, dtype="<u4")
    counts[: files % slots.SLOTS] += 1
    sizes = counts.astype("<i8") * SIZE
    return Totals(
        files=files,
        blocks=files,
        block_bytes=files * SIZE,
        largest_block=SIZE,
        slot_bytes=sizes.tobytes(),
        slot_files=counts.tobytes(),
    )


class Fleet:
    """All agents: what each is assigned, which it has at once."""

    def __init__(self, *, nodes: int, sizes: Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]) -> None:
        self._sizes = sizes
        self._states = {
            f"n{number:03d}": AgentState(
                node=f"n{number:03d}",
                instance=f"first {number}",
                revision=1,
                capacity_bytes=1 << 40,
                disk_free_bytes=1 << 40,
            )
            for number in range(nodes)
        }
        self._news = {node: asyncio.Event() for node in self._states}
        self._holders: dict[str, set[str]] = {}
        self._spread: dict[str, dict[int, float]] = {}

    async def state(self, request: web.Request) -> web.Response:
        node = request.match_info["node"]
        revision = (request.query.get("instance"), int(request.query.get("revision", "-1")))
        if revision == (self._states[node].instance, self._states[node].revision):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(request.query.get("wait", "0"))):
                    await self._news[node].wait()
        return web.Response(body=msgspec.msgpack.encode(self._states[node]))

    async def assign(self, request: web.Request) -> web.Response:
        node = request.match_info["node"]
        before = self._states[node]
        mounts = dict(before.mounts)
        for assignment in msgspec.msgpack.decode(await request.read(), type=list[Assignment]):
            mounts[assignment.mount] = self._done(assignment)
            holders = self._holders.setdefault(assignment.mount, set())
            (holders.add if mounts[assignment.mount].held_bytes else holders.discard)(node)
            self._spread.setdefault(assignment.mount, {}).setdefault(len(holders), time.time())
        self._states[node] = msgspec.structs.replace(
            before,
            revision=before.revision + 1,
            mounts=mounts,
            used_bytes=sum(state.held_bytes for state in mounts.values()),
        )
        self._news[node].set()
        self._news[node] = asyncio.Event()
        return web.Response(body=msgspec.msgpack.encode(self._states[node]))

    def _done(self, assignment: Assignment) -> MountState:
        sizes = self._sizes[assignment.manifest]
        held = slots.union(NO_SLOTS, *(part.slots for part in assignment.parts))
        return MountState(
            mount=assignment.mount,
            version=assignment.version,
            echo=echo_of(assignment),
            manifest=assignment.manifest,
            held_bytes=slots.bytes_in(held, sizes),
            complete=held,
            present=held,
            parts=tuple(
                PartState(
                    name=part.name,
                    wanted_bytes=(size := slots.bytes_in(part.slots, sizes)),
                    held_bytes=size,
                    wanted_files=size // SIZE,
                    held_files=size // SIZE,
                )
                for part in assignment.parts
            ),
        )

    async def spread(self, request: web.Request) -> web.Response:
        """When a mount reached each number of nodes."""
        return web.json_response(self._spread.get(f"/datasets/{request.match_info['mount']}", {}))


async def run_fleet(*, port: int, nodes: int, mounts: int, files: int, folder: ManifestFolder) -> None:
    """Serve until standard input ends."""
    totals = totals_of(files)
    mounted = {digest_of(number): totals for number in range(1, mounts)}
    real = {digest: listed(folder.open(digest)).totals for digest in folder.digests()}
    everything = {**mounted, **real}

    fleet = Fleet(
        nodes=nodes, sizes={digest: totals_of_digest.sizes for digest, totals_of_digest in everything.items()}
    )

    async def manifest(request: web.Request) -> web.FileResponse:
        return web.FileResponse(folder.file(request.match_info["digest"]))

    app = web.Application(client_max_size=64 << 20)
    app.add_routes(
        [
            web.get("/{node}/v1/state", fleet.state),
            web.put("/{node}/v1/assignments", fleet.assign),
            web.get("/{node}/v1/manifests/{digest}", manifest),
            web.get("/spread/{mount}", fleet.spread),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
