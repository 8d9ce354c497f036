"""Bringing assignments to the agents of a cache cluster: each agent by itself, so that one that hangs delays no other.

What an agent shall do is set here; sending it, again after a failure or a restart of the agent, goes on in the
background. Versions are one above the highest that any agent has reported or been sent for the mount.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from tdcs.engine.agents import AgentError, Agents, AgentState, Assignment, MountState, Part

_log = logging.getLogger(__name__)

RETRY_FIRST = 1.0
RETRY_MAX = 30.0

PEERS_SECONDS = 2.0
"""Which peers have what is news every moment while a load goes on; alone it is sent at most so often."""

VERSIONS_KEPT = 4

IDLE_SECONDS = 60.0
"""A sender that has had nothing to do for so long ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """An assignment that an agent has taken, in which of its lives, and when; and the parts of those before it, by
    version, for an agent that has not reported on this one yet."""

    instance: str
    assignment: Assignment
    at: float
    parts: Mapping[int, tuple[Part, ...]]


class Assigner:
    """What the agents of one cache cluster are assigned.

    Args:
        agents: the cluster's.
        on_sent: called with the mounts that an agent has taken assignments of.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        *,
        agents: Agents,
        on_sent: Callable[[set[str]], None] = lambda paths: None,
        clock: Callable[[], float] = time.monotonic,
        retry_first: float = RETRY_FIRST,
    ) -> None:
        self._agents = agents
        self._on_sent = on_sent
        self._clock = clock
        self._retry_first = retry_first
        self._wanted: dict[str, dict[str, Assignment]] = {}
        self._nodes: dict[str, set[str]] = {}
        self._sent: dict[tuple[str, str], _Sent] = {}
        self._forget: dict[str, set[str]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._versions: dict[str, int] = {}

    def put(self, *, path: str, assignments: Mapping[str, Assignment]) -> None:
        """Set what every agent shall do for a mount; those that are not named have nothing to do for it.

        Args:
            path: the mount.
            assignments: by node; their versions are set when they are sent.
        """
        nodes = self._nodes.setdefault(path, set())
        idle = {node: _emptied(self._wanted[node][path]) for node in nodes - assignments.keys()}
        nodes.update(assignments)
        states = self._agents.states()
        for node, assignment in {**assignments, **idle}.items():
            mine = self._wanted.setdefault(node, {})
            if mine.get(path) != assignment:
                mine[path] = assignment
            state = states.get(node)
            if state is not None and self._is_due(mine[path], sent=self._sent.get((node, path)), state=state):
                self._wake(node)

    def stop(self, path: str) -> None:
        """No Dataset wants anything of a mount now: what lies there is left alone."""
        self.put(path=path, assignments={})

    def moving(self, path: str, *, seen: Mapping[str, MountState]) -> bool:
        """Whether an agent still brings something away from nodes that leave, or one says something new.

        Args:
            path: the mount.
            seen: the states that its last pass has seen: what has arrived since then is not in its ledger yet.
        """
        states = self._agents.states()
        for node, before in seen.items():
            now = states[node].mounts.get(path) if node in states else None
            if now is not None and (now.held_bytes, now.complete) != (before.held_bytes, before.complete):
                return True
        brings = [
            node
            for node in self._nodes.get(path, ())
            if node in states and any(part.pull == "Peers" for part in self._wanted[node][path].parts)
        ]
        current = self.current(path, states=states) if brings else frozenset[str]()
        return any(node not in current or states[node].mounts[path].busy for node in brings)

    def forget(self, path: str) -> None:
        """Let every agent that knows of a mount drop all of it."""
        for node in self._nodes.pop(path, ()):
            self._wanted[node].pop(path, None)
        for node, state in self._agents.states().items():
            self._sent.pop((node, path), None)
            if path in state.mounts:
                self._forget.setdefault(node, set()).add(path)
                self._wake(node)

    def parts(self, path: str, *, states: Mapping[str, AgentState]) -> dict[str, tuple[Part, ...]]:
        """The parts that the progress in these states is about, where the assignment is known that it belongs to."""
        found = {}
        for node in self._nodes.get(path, ()):
            state, sent = states.get(node), self._sent.get((node, path))
            reported = state.mounts.get(path) if state is not None else None
            if state is None or sent is None or reported is None or sent.instance != state.instance:
                continue
            if reported.version in sent.parts:
                found[node] = sent.parts[reported.version]
        return found

    def current(self, path: str, *, states: Mapping[str, AgentState]) -> frozenset[str]:
        """The agents with a state that answers what they shall do for a mount now."""
        found = set()
        for node in self._nodes.get(path, ()):
            state, mine, sent = states.get(node), self._wanted[node][path], self._sent.get((node, path))
            if state is None or sent is None or sent.instance != state.instance:
                continue
            reported = state.mounts.get(path)
            if reported is None or reported.version != sent.assignment.version:
                continue
            if _alike(sent.assignment, mine):
                found.add(node)
        return frozenset(found)

    async def close(self) -> None:
        """Stop sending."""
        tasks = list(self._senders.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self, node: str) -> None:
        self._news.setdefault(node, asyncio.Event()).set()
        task = self._senders.get(node)
        if task is None or task.done():
            self._senders[node] = asyncio.create_task(self._send(node), name=f"assign {node}")

    async def _send(self, node: str) -> None:
        """The sender of one agent: until there is nothing to do for a while."""
        failures, news = 0, self._news[node]
        while True:
            news.clear()
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
            pause = IDLE_SECONDS
            if failures:
                pause = min(self._retry_first * 2.0 ** min(failures - 1, 16), RETRY_MAX)
                await asyncio.sleep(pause)
                continue
            try:
                async with asyncio.timeout(pause):
                    await news.wait()
            except TimeoutError:
                if not news.is_set():
                    return

    async def _send_once(self, node: str) -> None:
        gone = self._forget.get(node, set())
        if gone:
            paths = sorted(gone)
            await self._agents.forget(node=node, mounts=paths)
            gone.difference_update(paths)
        state = self._agents.states().get(node)
        if state is None:
            return  # it gets it when it is back: its mounts are looked at then
        due = self._due(node)
        if not due:
            return
        numbered = [
            msgspec.structs.replace(assignment, version=self._next_version(assignment.mount))
            for assignment in due
        ]
        await self._agents.assign(node=node, assignments=numbered)
        for assignment in numbered:
            before = self._sent.get((node, assignment.mount))
            known = before.parts if before is not None and before.instance == state.instance else {}
            self._sent[node, assignment.mount] = _Sent(
                instance=state.instance,
                assignment=assignment,
                at=self._clock(),
                parts=dict([*known.items(), (assignment.version, assignment.parts)][-VERSIONS_KEPT:]),
            )
        self._on_sent({assignment.mount for assignment in numbered})

    def _due(self, node: str) -> list[Assignment]:
        """What an agent has not been sent yet, or has forgotten."""
        state = self._agents.states().get(node)
        if state is None:
            return []
        return [
            assignment
            for path, assignment in self._wanted.get(node, {}).items()
            if self._is_due(assignment, sent=self._sent.get((node, path)), state=state)
        ]

    def _is_due(self, assignment: Assignment, *, sent: _Sent | None, state: AgentState) -> bool:
        if sent is None or sent.instance != state.instance:
            return True
        reported = state.mounts.get(assignment.mount)
        if reported is not None and reported.version > sent.assignment.version:
            return True  # another operator has been here
        if _same(sent.assignment, assignment):
            return False
        return not _alike(sent.assignment, assignment) or self._clock() - sent.at >= PEERS_SECONDS

    def _next_version(self, path: str) -> int:
        reported = max(
            (state.mounts[path].version for state in self._agents.states().values() if path in state.mounts),
            default=0,
        )
        self._versions[path] = 1 + max(reported, self._versions.get(path, 0))
        return self._versions[path]


def _same(one: Assignment, other: Assignment) -> bool:
    return msgspec.structs.replace(one, version=0) == msgspec.structs.replace(other, version=0)


def _emptied(assignment: Assignment) -> Assignment:
    """The same mount and version, with nothing to do."""
    return Assignment(
        mount=assignment.mount,
        version=0,
        manifest=assignment.manifest,
        manifest_urls=assignment.manifest_urls,
    )


def _alike(one: Assignment, other: Assignment) -> bool:
    """Whether two differ in nothing but what the peers have."""
    return _same(msgspec.structs.replace(one, peers=()), msgspec.structs.replace(other, peers=()))
