"""An agent with its two services: what asks it (HTTP) and what reads its blocks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from tdcs.engine import http_answers
from tdcs.listening import listen
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.transfer import ManifestFetcher
from tdcs.node.agent.agent import Agent
from tdcs.node.agent.agent_http import application
from tdcs.node.agent.agent_settings import AgentSettings
from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.transfer.source_relay import SourceRelay
from tdcs.trust.contexts import Contexts


@dataclass(frozen=True, kw_only=True)
class ServingAgent:
    """An agent that can be asked, and does not work yet: that is `agent.run`."""

    agent: Agent
    blocks: BlockService
    control_port: int
    block_port: int


@asynccontextmanager
async def serving_agent(
    settings: AgentSettings,
    *,
    disk: Disk,
    tls: Contexts | None,
    host: str,
    control_port: int = 0,
    block_port: int = 0,
    shutdown_seconds: float = 1.0,
) -> AsyncIterator[ServingAgent]:
    """Put an agent together on a disk that was made ready, and serve until the body ends.

    Args:
        tls: both services, and what it asks of other agents, are by TLS, and every caller by its role. None: plain, and
            every caller is answered.
        host: address that both services listen on.
        control_port, block_port: 0: any free one.
        shutdown_seconds: for requests under way at the end.

    Raises:
        OSError: a port is taken, or the certificate cannot be read.
    """
    manifests = ManifestFolder(disk.manifests)
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(ssl=tls.following_client() if tls is not None else True)
        session = await stack.enter_async_context(http_answers.open_session(connector))
        fetcher = ManifestFetcher(folder=manifests, session=session)
        stack.push_async_callback(fetcher.close)
        agent = Agent(settings=settings, disk=disk, manifests=manifests, fetcher=fetcher, tls=tls)
        ended = threading.Event()
        stack.callback(ended.set)
        relay = SourceRelay(source=agent.source_of, stopped=ended, keep=agent.keep_read)
        blocks = BlockService(
            disk=disk,
            feed=agent.feed,
            read_source=relay.read,
            read_on=agent.read_on,
            tls=tls.server if tls is not None else None,
        )
        stack.callback(blocks.close)
        bound = blocks.start(host=host, port=block_port)
        runner = web.AppRunner(
            application(agent, sent_bytes=lambda: blocks.sent_bytes, by_role=tls is not None),
            access_log=None,
            shutdown_timeout=shutdown_seconds,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        following = tls.following_server() if tls is not None else None
        await web.SockSite(runner, listen(host=host, port=control_port), ssl_context=following).start()
        yield ServingAgent(agent=agent, blocks=blocks, control_port=runner.addresses[0][1], block_port=bound)
