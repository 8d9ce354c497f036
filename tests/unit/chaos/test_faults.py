"""A fault of a chaos run is undone, however the run goes on."""

import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from e2e.chaos import nodes
from e2e.chaos.faults import Faults
from e2e.chaos.nodes import FILL, SIGNAL, Node
from e2e.chaos.plan import Kind, Part
from e2e.chaos.source import Source
from tests.support.chaos import Fault, Step

from tdcs_local import shell
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object


class Cluster:
    """One worker's pod on one node; remembers what was done to the node and to the source."""

    def __init__(self, *, running: bool = True) -> None:
        self.done: list[str] = []
        self.state: dict[str, dict[str, str]] = {"running": {}} if running else {"waiting": {}}

    def list(self, resource: str, **_: object) -> list[Object]:
        status = {"name": "worker", "containerID": "containerd://abc", "state": self.state}
        return [
            {
                "metadata": {"name": "worker-0", "namespace": "tdcs-system"},
                "spec": {"nodeName": "node"},
                "status": {"containerStatuses": [status]},
            }
        ]

    def capture(self, command: Sequence[str], **_: object) -> str:
        script, *words = command[5], *command[7:]
        self.done.append("fill" if script == FILL else " ".join(words) if script == SIGNAL else script)
        return "4096" if script == FILL else "1\n2\n"

    def set_mode(self, mode: str) -> None:
        self.done.append(mode)

    def reset(self) -> None:
        self.done.append("reset")


def faults_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[Faults, threading.Event]:
    monkeypatch.setattr(shell, "capture", cluster.capture)
    stop = threading.Event()
    stop.set()
    made = Faults(
        kubectl=cast(Kubectl, cluster),
        nodes=[Node("node")],
        control_plane=Node("control-plane"),
        source=cast(Source, cluster),
        install=lambda _: None,
        stop=stop,
    )
    return made, stop


def clock_set(offset: str) -> str:
    file = "/var/lib/tdcs-clock/offset"
    return f"echo {offset} > {file}.new && mv {file}.new {file}"


def step(kind: Kind, part: Part) -> Step:
    return Step(changes=(), faults=(Fault(kind=kind, part=part, seconds=60.0),))


@pytest.mark.parametrize(
    ("kind", "part", "done"),
    [
        (Kind.PAUSE, Part.WORKER, ["abc STOP", "abc CONT"]),
        (Kind.KILL, Part.WORKER, ["abc KILL"]),
        (Kind.FILL, Part.NODE, ["fill", "rm -f /var/lib/tdcs/filler"]),
        (Kind.ADVANCE, Part.CLOCK, [clock_set("+90"), clock_set("+0")]),
        (Kind.TURN_BACK, Part.CLOCK, [clock_set("-90"), clock_set("+0")]),
        (Kind.SHORTEN, Part.SOURCE, ["shorten", "reset"]),
        (Kind.FALSIFY, Part.SOURCE, ["falsify", "reset"]),
    ],
)
def test_a_fault_that_is_stopped_early_is_undone(
    kind: Kind, part: Part, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    faults, _ = faults_of(cluster, monkeypatch)
    (line,) = faults.run(step(kind, part))
    assert line.startswith("done: ")
    assert cluster.done == done
    (happened,) = faults.done
    assert (happened.fault.kind, happened.fault.part) == (kind, part)
    assert happened.begin <= happened.end <= time.time()


def test_a_fault_that_broke_off_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    faults, _ = faults_of(cluster, monkeypatch)

    def broken(command: Sequence[str], **_: Any) -> str:
        if cluster.capture(command) == "4096":
            raise LocalError(what="no answer within 120 s")
        return ""

    monkeypatch.setattr(shell, "capture", broken)
    with pytest.raises(LocalError):
        faults.run(step(Kind.FILL, Part.NODE))
    assert cluster.done == ["fill", "rm -f /var/lib/tdcs/filler"]


def test_what_is_away_already_cannot_fail_and_is_no_failure_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults, _ = faults_of(Cluster(running=False), monkeypatch)
    (line,) = faults.run(step(Kind.PAUSE, Part.WORKER))
    assert line == ("not possible: pause worker for 60.0 s: worker of worker-0 does not run")
    assert faults.done == []


@pytest.mark.parametrize("printed", ["", "active"])
def test_a_node_that_does_not_answer_is_asked_again(printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str | LocalError] = [LocalError(what="away"), LocalError(what="away"), printed]

    def capture(_: Sequence[str], **__: object) -> str:
        answer = answers.pop(0)
        if isinstance(answer, LocalError):
            raise answer
        return answer

    monkeypatch.setattr(shell, "capture", capture)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert Node("node").insist("true") == printed
    assert answers == []


def test_a_node_that_never_answers_is_named_with_what_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(_: Sequence[str], **__: object) -> str:
        raise LocalError(what="docker exec failed", why="the container is not running")

    monkeypatch.setattr(shell, "capture", capture)
    monkeypatch.setattr(nodes, "UNDO_SECONDS", 0.0)
    with pytest.raises(
        AssertionError, match=r"(?s)the container is not running.*node was asked for: rm -f x"
    ):
        Node("node").insist("rm -f x")


def test_a_source_whose_pod_is_away_is_asked_again_until_it_answers_as_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def kubectl(*words: str, **_: object) -> str:
        asked.append(words[-1])
        if len(asked) < 3:
            raise LocalError(what="no pod")
        return ""

    monkeypatch.setattr(time, "sleep", lambda _: None)
    Source(kubectl=cast(Kubectl, kubectl), namespace="n", image="python").reset()
    assert asked == ["", "", ""]
