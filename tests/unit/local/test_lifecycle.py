"""What ``up``, ``down`` and ``status`` do with what there is: above all, that they destroy nothing that works."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdcs_local import cli, demo, host, lifecycle, preflight, programs
from tdcs_local.containers import base_image, node_image
from tdcs_local.containers.node_image import NodeImages
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, kubeconfig
from tdcs_local.kind.cluster_state import Node, State
from tdcs_local.paths import CHECKOUT, KUBECONFIG
from tdcs_local.progress import Reporter


class World:
    """A machine with a cluster: ``states`` are what is seen one look after the other, the last one forever."""

    def __init__(self, *states: State) -> None:
        self.states = list(states)
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.said = io.StringIO()
        self.older = False
        self.abandoned = False
        self.engine = "answers"

    def look(self, name: str) -> State:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def act(self, name: str) -> Callable[..., None]:
        def run(**_: object) -> None:
            self.done.append(name)
            if name in self.failing:
                raise LocalError(what=f"{name} failed")

        return run

    def up(self) -> str:
        lifecycle.up(reporter=Reporter(stream=self.said))
        return " ".join(self.said.getvalue().split())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(State.RUNNING)
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TDCS_CLUSTER", "tdcs-test")
    for action in ("reconnect", "restart", "delete", "create", "finish"):
        monkeypatch.setattr(cluster, action, world.act(action))
    monkeypatch.setattr(cluster, "look", world.look)
    monkeypatch.setattr(cluster, "older", lambda name: world.older)
    monkeypatch.setattr(cluster, "abandoned", lambda name: world.abandoned)
    node = Node(name="n", running=True, owner=str(CHECKOUT), image="i")
    monkeypatch.setattr(cluster, "nodes", lambda name: [node])
    monkeypatch.setattr(host, "look_at_engine", lambda: host.Engine(state=world.engine))
    for action in ("start_engine", "stop_engine", "raise_limits"):
        monkeypatch.setattr(host, action, lambda *, reporter: None)
    monkeypatch.setattr(host, "require_programs", lambda *programs, reporter: None)
    monkeypatch.setattr(host, "own_engine", lambda: None)
    monkeypatch.setattr(preflight, "facts", lambda: None)
    monkeypatch.setattr(preflight, "require", lambda facts: None)
    monkeypatch.setattr(programs, "ensure", lambda name, reporter: Path("/nowhere"))
    monkeypatch.setattr(
        node_image, "ensure", lambda *, reporter: NodeImages(control_plane="cp", worker="worker")
    )
    monkeypatch.setattr(node_image, "kubectl", lambda *, reporter: Path("/nowhere/kubectl"))
    monkeypatch.setattr(base_image, "ensure", lambda *, reporter: "base")
    monkeypatch.setattr(kubeconfig, "KUBECONFIG", tmp_path / "kubeconfig")
    monkeypatch.setattr(lifecycle, "KUBECONFIG", CHECKOUT / ".local/kubeconfig-tdcs-test")
    return world


@pytest.mark.parametrize(
    ("seen", "failing", "done"),
    [
        pytest.param([State.RUNNING], "", [], id="all well"),
        pytest.param([State.ABSENT], "", ["create", "finish"], id="nothing there"),
        pytest.param([State.UNFINISHED], "", ["finish"], id="killed before the last steps"),
        pytest.param([State.UNWELL], "", ["finish"], id="a node lost its GPUs"),
        pytest.param(
            [State.SILENT, State.SILENT, State.RUNNING],
            "",
            ["reconnect"],
            id="no kubeconfig, or slow for once",
        ),
        pytest.param(
            [State.SILENT, State.SILENT, State.RUNNING],
            "reconnect",
            ["reconnect", "restart", "finish"],
            id="silent until its nodes were started again",
        ),
        pytest.param([State.STOPPED, State.STOPPED, State.RUNNING], "", ["restart", "finish"], id="a reboot"),
        pytest.param(
            [State.SILENT],
            "reconnect restart",
            ["reconnect", "restart", "delete", "create", "finish"],
            id="silent for good",
        ),
        pytest.param(
            [State.STOPPED], "restart", ["restart", "delete", "create", "finish"], id="cannot be started"
        ),
        pytest.param([State.BROKEN], "", ["delete", "create", "finish"], id="never completed"),
    ],
)
def test_up_repairs_what_was_once_complete_and_makes_again_only_what_is_beyond_repair(
    world: World, seen: list[State], failing: str, done: list[str]
) -> None:
    world.states, world.failing = seen, set(failing.split())
    said = world.up()
    assert world.done == done
    assert ("is made again" in said) is ("delete" in done)
    for repair in failing.split():
        assert f"tdcs-test could not be repaired by that: {repair} failed" in said


def test_a_program_that_cannot_be_built_costs_no_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, reporter: Reporter) -> Path:
        raise LocalError(what=f"building {name} failed")

    world.states = [State.SILENT]
    monkeypatch.setattr(programs, "ensure", fail)
    with pytest.raises(LocalError, match="building kind failed"):
        world.up()
    assert world.done == []


def test_a_failure_of_the_last_steps_costs_no_cluster(world: World) -> None:
    world.states, world.failing = [State.UNWELL], {"finish"}
    with pytest.raises(LocalError, match="finish failed"):
        world.up()
    assert world.done == ["finish"]


def test_a_cluster_of_another_checkout_is_left_alone(world: World) -> None:
    world.states = [State.FOREIGN]
    with pytest.raises(LocalError, match="is not this checkout's") as caught:
        world.up()
    assert "down --force" in caught.value.remedy
    assert world.done == []


def test_a_cluster_whose_checkout_is_gone_is_replaced(world: World) -> None:
    world.states, world.abandoned = [State.FOREIGN], True
    assert "belongs to a checkout that is gone: it is replaced" in world.up()
    assert world.done == ["delete", "create", "finish"]


@pytest.mark.parametrize("state", [State.RUNNING, State.UNFINISHED])
def test_a_cluster_of_an_older_node_image_is_kept_and_named(world: World, state: State) -> None:
    world.states, world.older = [state], True
    again = "`TDCS_CLUSTER=tdcs-test make down && TDCS_CLUSTER=tdcs-test make up` renews it"
    assert f"was made from an older node image; {again}" in world.up()
    assert "delete" not in world.done


def test_down_without_rights_fails_and_changes_nothing(world: World, tmp_path: Path) -> None:
    world.engine = "denied"
    (tmp_path / "kubeconfig").write_text("contexts:\n- name: kind-tdcs-test\n")
    result = CliRunner().invoke(cli.main, ["down"])
    assert result.exit_code == 1
    assert "docker does not let this user in" in result.output
    assert "usermod -aG docker" in result.output
    assert world.done == []
    assert (tmp_path / "kubeconfig").exists()


def test_down_without_an_engine_says_what_stays_and_removes_the_access(world: World, tmp_path: Path) -> None:
    world.engine = "absent"
    (tmp_path / "kubeconfig").write_text("contexts:\n- name: kind-tdcs-test\n")
    lifecycle.down(reporter=Reporter(stream=world.said))
    said = " ".join(world.said.getvalue().split())
    assert "remain in it and go with `TDCS_CLUSTER=tdcs-test make down` when it runs again" in said
    assert not (tmp_path / "kubeconfig").exists()


@pytest.mark.parametrize(
    ("state", "code"),
    [
        pytest.param(State.RUNNING, 0, id="up"),
        *(
            pytest.param(state, 3, id=state.name)
            for state in (State.STOPPED, State.BROKEN, State.SILENT, State.UNFINISHED, State.UNWELL)
        ),
        pytest.param(State.ABSENT, 1, id="none"),
        pytest.param(State.FOREIGN, 1, id="none of this checkout"),
    ],
)
def test_status_tells_by_its_exit_whether_there_is_a_cluster(world: World, state: State, code: int) -> None:
    world.states = [state]
    result = CliRunner().invoke(cli.main, ["status", "--quiet"])
    assert (result.exit_code, result.output) == (code, "")


def test_that_there_is_no_cluster_is_an_answer_and_no_error(world: World) -> None:
    world.states = [State.ABSENT]
    result = CliRunner().invoke(cli.main, ["status"])
    said = "there is no cluster tdcs-test; `TDCS_CLUSTER=tdcs-test make up` makes it\n"
    assert (result.exit_code, result.output) == (0, said)
    world.states = [State.UNWELL]
    assert CliRunner().invoke(cli.main, ["status"]).exit_code == 3


@pytest.mark.parametrize(("name", "command"), [("tdcs", "make down"), ("x", "TDCS_CLUSTER=x make down")])
def test_the_demo_names_the_cluster_that_is_to_be_removed(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TDCS_CLUSTER", name)
    demo.hints()
    said = capsys.readouterr().out
    assert f"  {command}        # removes everything again" in said
    assert f"  export KUBECONFIG={KUBECONFIG}\n" in said
    assert KUBECONFIG.is_absolute()


@pytest.mark.parametrize("there", [True, False])
def test_without_an_engine_the_access_tells_of_a_cluster(
    world: World, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.engine = "absent"
    monkeypatch.setattr(lifecycle, "KUBECONFIG", tmp_path / "kubeconfig")
    if there:
        (tmp_path / "kubeconfig").touch()
    lines, code = lifecycle.status()
    assert code == (3 if there else 1)
    assert "does not run" in lines[0]
