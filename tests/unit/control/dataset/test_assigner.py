"""Assignments reach agents, each by its own sender; a node that is gone has none."""

import asyncio

import msgspec
import pytest
from tests.support.waiting import eventually_async

from tdcs.control.dataset.assigner import Assigner
from tdcs.model.agent_state import (
    NO_SLOTS,
    AgentError,
    AgentState,
    Assignment,
    MountState,
    Part,
    SourceAccess,
    echo_of,
)


class GoneAgents:
    """One agent, and it can be taken away."""

    def __init__(self) -> None:
        self.state: AgentState | None = AgentState(
            node="a", instance="1", revision=1, mounts={"/datasets/1": MountState(mount="/datasets/1")}
        )
        self.forgets = 0

    def states(self) -> dict[str, AgentState]:
        return {"a": self.state} if self.state is not None else {}

    async def assign(self, *, node: str, assignments: list[Assignment]) -> None:
        raise AssertionError("nothing is assigned here")

    async def drop_mounts(self, *, node: str, mounts: list[str]) -> None:
        self.forgets += 1
        if self.forgets == 1:
            self.state = None  # it goes while it is asked
        raise AgentError("the agent of a does not answer", node="a")


async def test_a_node_that_is_gone_is_not_asked_forever_to_forget_a_mount() -> None:
    agents = GoneAgents()
    assigner = Assigner(agents=agents, retry_first=0.001)  # type: ignore[arg-type]
    assigner.drop_mount("/datasets/1")
    await eventually_async(lambda: agents.forgets == 1 and agents.state is None, deadline=60)
    await asyncio.sleep(0.1)  # a hundred tries, if there were any
    assert agents.forgets == 1
    await assigner.close()


class QuietAgents(GoneAgents):
    """One agent that takes what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.assigned: list[Assignment] = []
        self.forgotten: list[str] = []

    async def assign(self, *, node: str, assignments: list[Assignment]) -> None:
        self.assigned += assignments

    async def drop_mounts(self, *, node: str, mounts: list[str]) -> None:
        self.forgotten += mounts


async def test_where_a_manifest_is_to_be_had_is_no_news_to_an_agent_that_has_it() -> None:
    agents = QuietAgents()
    assigner = Assigner(agents=agents)  # type: ignore[arg-type]
    path = "/datasets/1"

    def put(*urls: str) -> None:
        assignment = Assignment(mount=path, version=0, manifest="d", manifest_urls=urls)
        assigner.put(path=path, assignments={"a": assignment})

    def report(manifest: str) -> None:
        last = agents.assigned[-1]
        mount = MountState(mount=path, version=last.version, echo=echo_of(last), manifest=manifest)
        agents.state = AgentState(node="a", instance="1", revision=1, mounts={path: mount})

    put("operator")
    await eventually_async(lambda: len(agents.assigned) == 1, deadline=60)
    report("")
    put("operator", "b")  # it does not have it yet
    await eventually_async(
        lambda: [assignment.manifest_urls[-1] for assignment in agents.assigned] == ["operator", "b"],
        deadline=5,
    )
    report("d")
    put("operator", "b", "c")
    assert assigner.current(path, states=agents.states()) == {"a"}
    await asyncio.sleep(0.05)
    assert len(agents.assigned) == 2
    await assigner.close()


async def test_a_mount_that_is_gone_is_forgotten_while_assignments_are_held_and_these_go_out_later() -> None:
    agents = QuietAgents()
    assigner = Assigner(agents=agents, held=True)  # type: ignore[arg-type]
    assigner.put(
        path="/datasets/2", assignments={"a": Assignment(mount="/datasets/2", version=0, manifest="d")}
    )
    assigner.drop_mount("/datasets/1")
    await eventually_async(lambda: agents.forgotten == ["/datasets/1"], deadline=60)
    assert not agents.assigned
    assigner.release()
    await eventually_async(
        lambda: [assignment.mount for assignment in agents.assigned] == ["/datasets/2"], deadline=60
    )
    await assigner.close()


class TwoAgents:
    """The agents of nodes a and b, which take what they are sent."""

    def __init__(self, *, versions: dict[str, int]) -> None:
        self.assigned: dict[str, list[Assignment]] = {node: [] for node in versions}
        self.versions = versions
        self.mounts = {PATH}

    def states(self) -> dict[str, AgentState]:
        return {
            node: AgentState(
                node=node,
                instance="1",
                revision=1,
                mounts={path: MountState(mount=path, version=version) for path in self.mounts},
            )
            for node, version in self.versions.items()
        }

    async def assign(self, *, node: str, assignments: list[Assignment]) -> None:
        self.assigned[node] += assignments

    async def drop_mounts(self, *, node: str, mounts: list[str]) -> None:
        self.mounts -= set(mounts)


PATH = "/datasets/1"
HIGHEST = (1 << 63) - 1


@pytest.mark.failure_mode("agent-reports-impossible-version")
async def test_a_version_that_one_agent_reports_changes_no_version_of_another() -> None:
    agents = TwoAgents(versions={"a": 3, "b": HIGHEST})
    assigner = Assigner(agents=agents)  # type: ignore[arg-type]
    assigner.put(path=PATH, assignments={"a": Assignment(mount=PATH, version=0, manifest="d")})
    await eventually_async(lambda: bool(agents.assigned["a"]), deadline=60)
    (sent,) = agents.assigned["a"]
    assert sent.version == 4
    # What the agent answers can be read by the operator: its version is a number that a state may have.
    answer = MountState(mount=PATH, version=sent.version)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=MountState) == answer
    await assigner.close()


async def test_a_mount_made_again_is_assigned_above_the_version_that_was_forgotten() -> None:
    agents = TwoAgents(versions={"a": 7, "b": HIGHEST})
    assigner = Assigner(agents=agents)  # type: ignore[arg-type]
    assignment = Assignment(mount=PATH, version=0, manifest="d")
    assigner.put(path=PATH, assignments={"a": assignment, "b": assignment})
    await eventually_async(lambda: bool(agents.assigned["a"]) and bool(agents.assigned["b"]), deadline=60)
    assigner.drop_mount(PATH)
    await eventually_async(lambda: not agents.mounts, deadline=60)
    assigner.put(path=PATH, assignments={"a": assignment})
    await eventually_async(lambda: len(agents.assigned["a"]) == 2, deadline=60)
    assert [assignment.version for assignment in agents.assigned["a"]] == [8, 9]
    await assigner.close()


async def test_a_state_about_another_assignment_of_the_same_number_decides_nothing() -> None:
    """Two operators, one after the other, may give a number to two assignments; the agent keeps the first."""
    agents = QuietAgents()
    assigner = Assigner(agents=agents)  # type: ignore[arg-type]
    mine = Assignment(mount=PATH, version=0, manifest="d", parts=(Part(name="mine", slots=NO_SLOTS),))
    assigner.put(path=PATH, assignments={"a": mine})
    await eventually_async(lambda: len(agents.assigned) == 1, deadline=5)

    def report(of: Assignment, *, version: int) -> None:
        mount = MountState(mount=PATH, version=version, echo=echo_of(of), manifest="d")
        agents.state = AgentState(node="a", instance="1", revision=1, mounts={PATH: mount})

    theirs = msgspec.structs.replace(mine, parts=(Part(name="other", slots=NO_SLOTS),))
    report(theirs, version=agents.assigned[0].version)
    assert assigner.current(PATH, states=agents.states()) == frozenset()
    assert assigner.parts(PATH, states=agents.states()) == {}
    assigner.put(path=PATH, assignments={"a": mine})
    await eventually_async(lambda: len(agents.assigned) == 2, deadline=5)
    assert agents.assigned[1].version > agents.assigned[0].version
    report(mine, version=agents.assigned[1].version)
    assert assigner.current(PATH, states=agents.states()) == {"a"}
    assert assigner.parts(PATH, states=agents.states()) == {"a": mine.parts}
    await assigner.close()


def test_an_echo_is_the_same_behind_the_wire_and_says_nothing_of_keys() -> None:
    source = SourceAccess(
        uri="s3://b", options={"region": "r"}, access_key_id="id", secret_access_key="first"
    )
    assignment = Assignment(mount=PATH, version=1, manifest="d", handover_seconds=5, source=source)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(assignment), type=Assignment)
    assert echo_of(received) == echo_of(assignment)
    changed = msgspec.structs.replace(source, secret_access_key="second")
    assert echo_of(msgspec.structs.replace(assignment, source=changed)) == echo_of(assignment)
    assert echo_of(msgspec.structs.replace(assignment, bandwidth=1)) != echo_of(assignment)
