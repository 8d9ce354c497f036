"""Bringing assignments to the agents of a cache cluster: each agent by itself, so that one that hangs delays no other.

What an agent shall do is set here; sending it, again after a failure or a restart of the agent, goes on in the
background. Versions are counted for each agent by itself: one above the highest that this agent has reported or been
sent for the mount. What one agent reports changes no number of another's. Whether a state is about an assignment
follows from its echo alone, not from a number, which another operator may have given to another assignment.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from tdcs.kube.informer import backoff
from tdcs.model.agent_state import AgentError, Agents, AgentState, Assignment, MountState, Part, echo_of

_log = logging.getLogger(__name__)

RETRY_MAX = 30.0

PEERS_SECONDS = 2.0
"""Which peers have what is news every moment while a load goes on; alone it is sent at most so often."""

VERSIONS_KEPT = 4

RELEASED_AT_ONCE = 8
"""Agents whose assignments are made in one turn of the event loop when an operator has started."""

_HIGHEST_COUNTED = 1 << 62
"""No count of changes gets here: what is higher is a defect of the agent that reported it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """An assignment that an agent has taken, in which of its lives, and when; and the parts of it and of those before
    it by their echo (`echo_of`), for an agent that has not reported on this one yet."""

    instance: str
    assignment: Assignment
    echo: str
    at: float
    parts: Mapping[str, tuple[Part, ...]]


@dataclass(eq=False, slots=True, kw_only=True)
class Assigner:
    """What the agents of one cache cluster are assigned.

    Attributes:
        retry_first: seconds before what an agent has refused is sent again, for the first time.
        held: whether no assignment is sent yet, see `release`.
    """

    agents: Agents
    retry_first: float = 1.0
    clock: Callable[[], float] = time.monotonic
    held: bool = False
    _assignments: dict[str, dict[str, Assignment]] = field(default_factory=dict, init=False)
    _nodes: dict[str, set[str]] = field(default_factory=dict, init=False)
    _sent: dict[tuple[str, str], _Sent] = field(default_factory=dict, init=False)
    _to_drop: dict[str, set[str]] = field(default_factory=dict, init=False)
    _senders: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _news: set[str] = field(default_factory=set, init=False)
    _versions: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    _forgotten: int = field(default=0, init=False)
    _releasing: asyncio.Task[None] | None = field(default=None, init=False)

    def put(self, *, path: str, assignments: Mapping[str, Assignment]) -> None:
        """Set what every agent shall do for a mount; those that are not named have nothing to do for it.

        Args:
            assignments: by node; their versions are set when they are sent.
        """
        nodes = self._nodes.setdefault(path, set())
        idle = {node: _emptied(self._assignments[node][path]) for node in nodes - assignments.keys()}
        nodes.update(assignments)
        states = self.agents.states()
        for node, assignment in {**assignments, **idle}.items():
            self._assignments.setdefault(node, {})[path] = assignment
            if node in states and self._is_due(node, assignment, states[node]):
                self._wake(node)

    def release(self) -> None:
        """Send from now on what has been put. A new operator looks at all mounts first: their agents go on with what
        they were sent before, and get what is new to them in one request."""
        self.held = False
        self._releasing = asyncio.create_task(self._release(list(self._assignments)), name="assign all")

    async def _release(self, nodes: list[str]) -> None:
        """A few agents in one turn of the loop: each may have hundreds of mounts."""
        for place, node in enumerate(nodes):
            self._wake(node)
            if place % RELEASED_AT_ONCE == RELEASED_AT_ONCE - 1:
                await asyncio.sleep(0)

    def stop(self, path: str) -> None:
        """No Dataset wants anything of a mount now: what is there is left alone."""
        self.put(path=path, assignments={})

    def moving(self, path: str, *, last_states: Mapping[str, MountState]) -> bool:
        """Whether an agent still brings something away from nodes that leave, or one says something new.

        Args:
            path: the mount.
            last_states: the states that its last pass has seen: what has arrived since then is not in its ledger yet.
        """
        states = self.agents.states()
        for node, before in last_states.items():
            now = states[node].mounts.get(path) if node in states else None
            if now is not None and (now.held_bytes, now.complete) != (before.held_bytes, before.complete):
                return True
        brings = [
            node
            for node in self._nodes.get(path, ())
            if node in states and any(part.pull == "Peers" for part in self._assignments[node][path].parts)
        ]
        current = self.current(path, states=states) if brings else frozenset[str]()
        return any(node not in current or states[node].mounts[path].busy for node in brings)

    def drop_mount(self, path: str) -> None:
        """Let every agent that knows of a mount drop all of it."""
        for node in self._nodes.pop(path, ()):
            self._assignments[node].pop(path, None)
        for node, state in self.agents.states().items():
            self._sent.pop((node, path), None)
            if path in state.mounts:
                self._to_drop.setdefault(node, set()).add(path)
                self._wake(node)

    def parts(self, path: str, *, states: Mapping[str, AgentState]) -> dict[str, tuple[Part, ...]]:
        """The parts that the progress in these states is about, where the assignment is known that it belongs to."""
        reported = self._reported(path, states)
        return {node: sent.parts[echo] for node, echo, sent in reported if echo in sent.parts}

    def current(self, path: str, *, states: Mapping[str, AgentState]) -> frozenset[str]:
        """The agents with a state that answers what they shall do for a mount now."""
        return frozenset(
            node
            for node, echo, sent in self._reported(path, states)
            if echo == sent.echo
            and _alike(
                sent.assignment, self._assignments[node][path], manifest=states[node].mounts[path].manifest
            )
        )

    def _reported(self, path: str, states: Mapping[str, AgentState]) -> Iterator[tuple[str, str, _Sent]]:
        """The agents that have been sent something for a mount in the life that they report on: by which assignment
        their state is, and what they were sent."""
        for node in self._nodes.get(path, ()):
            state, sent = states.get(node), self._sent.get((node, path))
            if state is None or path not in state.mounts:
                continue
            if sent is not None and sent.instance == state.instance:
                yield node, state.mounts[path].echo, sent

    async def close(self) -> None:
        tasks = [*self._senders.values(), *([self._releasing] if self._releasing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self, node: str) -> None:
        self._news.add(node)
        task = self._senders.get(node)
        if (not self.held or self._to_drop.get(node)) and (task is None or task.done()):
            self._senders[node] = asyncio.create_task(self._send(node), name=f"assign {node}")

    async def _send(self, node: str) -> None:
        """The sender of one agent: until there is nothing more to do."""
        failures = 0
        while failures or node in self._news:
            self._news.discard(node)
            try:
                await self._send_once(node)
                failures = 0
            except AgentError as error:
                failures += 1
                _log.info("%s; it is tried again", error)
            except Exception:
                failures += 1
                _log.exception(
                    "the agent of %s could not be given its work by a defect of the operator", node
                )
            if failures:
                await asyncio.sleep(backoff(failures=failures, first=self.retry_first, most=RETRY_MAX))

    async def _send_once(self, node: str) -> None:
        state = self.agents.states().get(node)
        if state is None:
            return  # it gets it when it is back: its mounts are looked at then
        mounts = self._to_drop.get(node, set())
        if mounts:
            paths = sorted(mounts)
            await self.agents.drop_mounts(node=node, mounts=paths)
            mounts.difference_update(paths)
            for path in paths:
                self._drop_version(node, path)
        if self.held:
            return
        numbered = [
            msgspec.structs.replace(assignment, version=self._next_version(node, path, state))
            for path, assignment in self._assignments.get(node, {}).items()
            if self._is_due(node, assignment, state)
        ]
        if not numbered:
            return
        await self.agents.assign(node=node, assignments=numbered)
        for assignment in numbered:
            before = self._sent.get((node, assignment.mount))
            parts_by_echo = before.parts if before is not None and before.instance == state.instance else {}
            echo = echo_of(assignment)
            kept_parts = [
                (sent_echo, parts) for sent_echo, parts in parts_by_echo.items() if sent_echo != echo
            ]
            self._sent[node, assignment.mount] = _Sent(
                instance=state.instance,
                assignment=assignment,
                echo=echo,
                at=self.clock(),
                parts=dict([*kept_parts, (echo, assignment.parts)][-VERSIONS_KEPT:]),
            )

    def _is_due(self, node: str, assignment: Assignment, state: AgentState) -> bool:
        """Whether an agent has not been sent an assignment yet, or has forgotten it."""
        sent = self._sent.get((node, assignment.mount))
        if sent is None or sent.instance != state.instance:
            return True
        reported = state.mounts.get(assignment.mount)
        if reported is not None and reported.version > sent.assignment.version:
            return True  # another operator has been here
        if (
            reported is not None
            and reported.version == sent.assignment.version
            and reported.echo != sent.echo
        ):
            return True  # as above, with the same number
        manifest = reported.manifest if reported is not None else ""
        if not _alike(sent.assignment, assignment, manifest=manifest):
            return True
        return sent.assignment.peers != assignment.peers and self.clock() - sent.at >= PEERS_SECONDS

    def _next_version(self, node: str, path: str, state: AgentState) -> int:
        mount = state.mounts.get(path)
        sent = self._versions.get((node, path), self._forgotten)
        version = 1 + max(mount.version if mount is not None else 0, sent)
        self._versions[node, path] = version
        return version

    def _drop_version(self, node: str, path: str) -> None:
        """Forget the number of a mount that an agent has dropped. A mount of the same path starts above it, so that a
        late state of the dropped one answers no assignment of the new one."""
        version = self._versions.pop((node, path), 0)
        if version < _HIGHEST_COUNTED:
            self._forgotten = max(self._forgotten, version)


def _emptied(assignment: Assignment) -> Assignment:
    return Assignment(
        mount=assignment.mount,
        version=0,
        manifest=assignment.manifest,
        manifest_urls=assignment.manifest_urls,
        early_files=assignment.early_files,
    )


def _alike(sent: Assignment, assignment: Assignment, *, manifest: str) -> bool:
    """Whether an assignment that was sent differs from a wanted one in nothing but its number, what the peers have, and
    where the manifest is to be had that the agent has (`manifest`: its digest)."""
    urls = assignment.manifest_urls if manifest == assignment.manifest else sent.manifest_urls
    return (
        msgspec.structs.replace(sent, version=assignment.version, peers=assignment.peers, manifest_urls=urls)
        == assignment
    )
