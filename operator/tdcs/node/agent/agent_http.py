"""The agent's HTTP service: what the operator says and asks, what peers fetch, health and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tdcs.engine.role_check import check_roles
from tdcs.listing.transfer import manifest_routes
from tdcs.model.agent_state import AgentState, Assignment
from tdcs.node.agent.agent import Agent
from tdcs.node.agent.agent_metrics import registry_of
from tdcs.node.agent.agent_settings import VersionError
from tdcs.node.agent.folder_routes import folder_routes
from tdcs.node.agent.source_routes import source_routes
from tdcs.trust.rights import CONTROL_REQUESTS

MOST_WAIT_SECONDS: Final = 60.0
_LARGEST_BODY: Final = 64 << 20
_MSGPACK: Final = "application/msgpack"


def application(
    agent: Agent, *, sent_bytes: Callable[[], int] = int, by_role: bool = False
) -> web.Application:
    """The service of an agent; `sent_bytes` says what its block service has sent.

    With `by_role`, callers are answered as `tdcs.trust.rights` says of the role in their certificates.

    Until the agent has looked at its disk it says nothing of mounts, and takes no assignments: the operator would hear
    that nothing is there.
    """
    guards = [check_roles(CONTROL_REQUESTS)] if by_role else []
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=guards)
    registry = registry_of(agent, sent_bytes=sent_bytes)

    def require_ready() -> None:
        if not agent.ready:
            raise web.HTTPServiceUnavailable(text="the first look at the disk is not done\n")

    async def health(_: web.Request) -> web.Response:
        require_ready()
        return web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def state(request: web.Request) -> web.Response:
        require_ready()
        try:
            revision = int(request.query.get("revision", "-1"))
            wait = min(float(request.query.get("wait", "0")), MOST_WAIT_SECONDS)
        except ValueError as error:
            raise web.HTTPBadRequest(text="revision and wait are numbers\n") from error
        report = await agent.state_after(
            instance=request.query.get("instance", ""), revision=revision, wait_seconds=wait
        )
        return _answer(report)

    async def assign(request: web.Request) -> web.Response:
        require_ready()
        try:
            assignments = msgspec.msgpack.decode(await request.read(), type=list[Assignment])
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text="the body is no list of assignments\n") from error
        try:
            agent.assign(assignments)
        except VersionError:
            return _answer(agent.state, status=409)
        return _answer(agent.state)

    async def drop_mounts(request: web.Request) -> web.Response:
        require_ready()
        try:
            mounts = msgspec.msgpack.decode(await request.read(), type=list[str])
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text="the body is no list of mounts\n") from error
        agent.drop_mounts(mounts)
        return _answer(agent.state)

    app.add_routes(
        [
            web.get("/healthz", health),
            web.get("/metrics", metrics),
            web.get("/v1/state", state),
            web.put("/v1/assignments", assign),
            web.post("/v1/forget", drop_mounts),
            *folder_routes(),
            *source_routes(agent.manifests),
            *manifest_routes(agent.manifests, coming=agent.fetcher.fetches),
        ]
    )
    return app


def _answer(state: AgentState, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.msgpack.encode(state), status=status, content_type=_MSGPACK)
