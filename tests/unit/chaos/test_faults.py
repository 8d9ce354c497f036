"""A fault of a chaos run is undone, however the run goes on."""

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
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


def step(kind: Kind, part: Part) -> Step:
    return Step(changes=(), faults=(Fault(kind=kind, part=part, seconds=60.0),))


@pytest.mark.parametrize(
    ("kind", "part", "done"),
    [
        (Kind.PAUSE, Part.WORKER, ["abc STOP", "abc CONT"]),
        (Kind.KILL, Part.WORKER, ["abc KILL"]),
        (Kind.FILL, Part.NODE, ["fill", "rm -f /var/lib/tdcs/filler"]),
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
    assert len(faults.done) == 1


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
