"""The operator's side of the agents' HTTP service: assignments down, states up by bounded long polls."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

import aiohttp
import msgspec

from tdcs.engine import http_answers
from tdcs.model.agent_state import (
    AgentError,
    AgentState,
    Assignment,
    SourceCount,
    SourceToCount,
)
from tdcs.trust.contexts import Contexts

_log: Final = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

POLL_SECONDS: Final = 55.0
"""An agent at rest answers once a minute: hundreds of them cost next to nothing."""

KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""The kernel looks after a peer that says nothing: a node that is gone is known of after some ten seconds."""
_CALL_SECONDS: Final = 10.0
_SLACK_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.5
_SOON_TRIES: Final = 8
"""An agent that is gone is asked again after the first pause so often, for it may only have restarted."""

_MOST_PAUSE: Final = 10.0
_LARGEST_STATE: Final = 16 << 20
"""Packed: some two kilobytes for each of the mounts."""
_REFUSED: Final = 409
_NOT_READY: Final = 503


@dataclass(frozen=True, kw_only=True)
class AgentAddress:
    """Where an agent is.

    Attributes:
        url: `http://host:port` of its HTTP service, or `https://`.
        blocks: `host:port` of its block service.
    """

    url: str
    blocks: str


class HttpAgents:
    """The agents of one cache cluster.

    A task for each agent keeps its state up to date: the agent answers as soon as something has changed. One that does
    not answer is not among `states` until it does.

    Args:
        on_change: called in the event loop with a node's name whenever its state is another one, or is gone.
        poll_seconds: how long an agent may keep a request while nothing changes.
        tls: contexts for agents with `https` addresses; None: there are none.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[str], None] = lambda _: None,
        poll_seconds: float = POLL_SECONDS,
        call_seconds: float = _CALL_SECONDS,
        tls: Contexts | None = None,
    ) -> None:
        self._on_change: Final = on_change
        self._poll_seconds: Final = poll_seconds
        self._call_seconds: Final = call_seconds
        self._tls: Final = tls
        self._addresses: dict[str, AgentAddress] = {}
        self._states: dict[str, AgentState] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def connect(self, addresses: Mapping[str, AgentAddress]) -> None:
        """Have exactly these agents, by node; in a running event loop. Unchanged ones are not disturbed."""
        for node in set(self._addresses) - set(addresses):
            self._drop(node)
        for node, address in addresses.items():
            if self._addresses.get(node) != address:
                self._drop(node)
                self._addresses[node] = address
                self._polls[node] = asyncio.create_task(self._poll(node, address), name=f"agent {node}")

    def states(self) -> Mapping[str, AgentState]:
        """The last state of every agent that is reachable now, by node."""
        return MappingProxyType(self._states)

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None:
        """Give one agent its assignments for these mounts. Raises AgentError."""
        mounts = ", ".join(assignment.mount for assignment in assignments)
        await self._call(
            "PUT", "/v1/assignments", node=node, body=list(assignments), attempted=f"assign {mounts} to"
        )

    async def drop_mounts(self, *, node: str, mounts: Sequence[str]) -> None:
        """Let an agent drop all blocks of these mounts and forget them. Raises AgentError."""
        await self._call(
            "POST", "/v1/forget", node=node, body=list(mounts), attempted=f"drop {', '.join(mounts)} on"
        )

    async def count_source(self, *, node: str, source: SourceToCount) -> SourceCount:
        """See `tdcs.model.agent_state.Agents`."""
        attempted = f"count the files of {source.source.uri} by"
        _, _, content = await self._request(
            "POST",
            "/v1/count-source",
            node=node,
            body=source,
            attempted=attempted,
            seconds=source.seconds + _SLACK_SECONDS,
        )
        try:
            return _decoded(content, SourceCount)
        except ValueError as error:
            raise AgentError(
                f"could not {attempted} the agent of node {node}: its answer is no count", node=node
            ) from error

    async def close(self) -> None:
        tasks = list(self._polls.values())
        for node in list(self._addresses):
            self._drop(node)
        await asyncio.gather(*tasks, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _drop(self, node: str) -> None:
        self._addresses.pop(node, None)
        if (task := self._polls.pop(node, None)) is not None:
            task.cancel()
        if self._states.pop(node, None) is not None:
            self._on_change(node)

    async def _call(self, method: str, path: str, *, node: str, body: object, attempted: str) -> None:
        """Make a request that is answered with the agent's state."""
        address, status, content = await self._request(
            method, path, node=node, body=body, attempted=attempted, seconds=self._call_seconds
        )
        try:
            self._take(node, address, _decoded(content, AgentState))
        except ValueError as error:
            self._lose(node, address, error)
            raise AgentError(f"could not {attempted} the agent of node {node}: {error}", node=node) from error
        if status == _REFUSED:
            raise AgentError(
                f"could not {attempted} the agent of node {node}: it works by a higher version of one of "
                f"them, or by another one of the same version; its state says which",
                node=node,
            )

    async def _request(
        self, method: str, path: str, *, node: str, body: object, attempted: str, seconds: float
    ) -> tuple[AgentAddress, int, bytes]:
        """Who answered, and the status and content of the answer, also of a refusal (409)."""
        address = self._addresses.get(node)
        if address is None:
            raise AgentError(
                f"could not {attempted} the agent of node {node}: no such agent is known; wait for its pod",
                node=node,
            )
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._client().request(
                method,
                f"{address.url}{path}",
                data=msgspec.msgpack.encode(body),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                content = await http_answers.read(response, most=_LARGEST_STATE)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or "no answer in time"
            raise AgentError(
                f"could not {attempted} the agent of node {node}: {reason}; it is tried again when the agent "
                f"answers, see the container `agent` of the cache worker's pod there",
                node=node,
            ) from error
        if response.status == _NOT_READY:
            raise AgentError(
                f"could not {attempted} the agent of node {node}: it is not ready "
                f"({content[:200].decode(errors='replace').strip()}); it is tried again",
                node=node,
            )
        if response.status >= 400 and response.status != _REFUSED:
            raise AgentError(
                f"could not {attempted} the agent of node {node}: it answered {response.status} "
                f"({content[:200].decode(errors='replace').strip()}); operator and agent may be of different "
                f"versions",
                node=node,
            )
        return address, response.status, content

    async def _poll(self, node: str, address: AgentAddress) -> None:
        failures, instance, revision = 0, "", -1
        while True:
            try:
                state = await self._ask(address, instance=instance, revision=revision)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                failures += 1
                self._lose(node, address, error, new=failures == 1 and isinstance(error, ValueError))
                instance, revision = "", -1
                await asyncio.sleep(retry_pause(failures) * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            else:
                failures, instance, revision = 0, state.instance, state.revision
                self._take(node, address, state)

    async def _ask(self, address: AgentAddress, *, instance: str, revision: int) -> AgentState:
        wait = self._poll_seconds
        timeout = aiohttp.ClientTimeout(total=wait + _SLACK_SECONDS, sock_connect=_SLACK_SECONDS)
        query = {"instance": instance, "revision": str(revision), "wait": str(wait)}
        async with self._client().get(
            f"{address.url}/v1/state", params=query, timeout=timeout, allow_redirects=False
        ) as response:
            response.raise_for_status()
            content = await http_answers.read(response, most=_LARGEST_STATE)
        return _decoded(content, AgentState)

    def _take(self, node: str, address: AgentAddress, state: AgentState) -> None:
        if self._addresses.get(node) != address:
            return
        previous = self._states.get(node)
        if (
            previous is not None
            and previous.instance == state.instance
            and previous.revision >= state.revision
        ):
            return
        self._states[node] = msgspec.structs.replace(state, address=address.blocks, url=address.url)
        self._on_change(node)

    def _lose(self, node: str, address: AgentAddress, error: Exception, *, new: bool = False) -> None:
        """It is not among those that answer until it does. Said once, and when it is `new`."""
        if self._addresses.get(node) != address:
            return
        was_answering = self._states.pop(node, None) is not None
        if was_answering or new:
            _log.warning("the agent of node %s does not answer: %s", node, error or "no answer in time")
        if was_answering:
            self._on_change(node)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            tls = self._tls.following_client() if self._tls is not None else True
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive, ssl=tls)
            self._session = http_answers.open_session(connector)
        return self._session


def _decoded(content: bytes, kind: type[_Answer]) -> _Answer:
    """What an agent has answered. Raises ValueError, which names the field that is wrong."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its answer is no {kind.__name__}: {error}") from error


def retry_pause(failures: int) -> float:
    """Seconds at most until an agent that has not answered so often is asked again."""
    return min(_MOST_PAUSE, _FIRST_PAUSE * 2.0 ** min(max(failures - _SOON_TRIES, 0), 10))


def _kept_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket of which the kernel notices by itself when the other side is gone."""
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
