"""Whose cluster it is, what is left of it, and how kind is asked for one."""

from pathlib import Path

import pytest

from tdcs_local import access, cluster
from tdcs_local.cluster import Answer, Node, State
from tdcs_local.errors import LocalError
from tdcs_local.node_image import NodeImages

EXPECTED = cluster.node_names("tdcs")
ALL_WELL = Answer(ready=True, nodes=frozenset(EXPECTED), complete="v1.34.4")


def nodes(*, running: bool = True, owner: str = "/mine", names: list[str] | None = None) -> list[Node]:
    return [
        Node(name=n, running=running, owner=owner, image="i") for n in (EXPECTED if names is None else names)
    ]


@pytest.mark.parametrize(
    ("found", "answer", "state"),
    [
        pytest.param([], Answer(ready=False), State.ABSENT, id="no container at all"),
        pytest.param(nodes(), ALL_WELL, State.RUNNING, id="all well"),
        pytest.param(nodes(owner="/theirs"), ALL_WELL, State.FOREIGN, id="another checkout made it"),
        pytest.param(nodes(owner=""), ALL_WELL, State.FOREIGN, id="made by hand with kind"),
        pytest.param(
            [*nodes()[:3], Node(name=EXPECTED[3], running=False, owner="/theirs", image="i")],
            ALL_WELL,
            State.FOREIGN,
            id="one node of somebody else is enough to keep off",
        ),
        pytest.param(nodes(names=EXPECTED[:2]), ALL_WELL, State.BROKEN, id="killed while nodes were made"),
        pytest.param(nodes(running=False), Answer(ready=False), State.STOPPED, id="the machine was rebooted"),
        pytest.param(nodes(), Answer(ready=False), State.BROKEN, id="killed before Kubernetes answered"),
        pytest.param(
            nodes(),
            Answer(ready=True, nodes=frozenset(EXPECTED[:2])),
            State.BROKEN,
            id="killed before all workers had joined",
        ),
        pytest.param(
            nodes(),
            Answer(ready=True, nodes=frozenset(EXPECTED)),
            State.UNFINISHED,
            id="killed before the last steps",
        ),
    ],
)
def test_what_there_is(found: list[Node], answer: Answer, state: State) -> None:
    assert cluster.judge(nodes=found, expected=EXPECTED, owner="/mine", answer=answer) is state


def test_nodes_have_the_names_that_kind_gives_them() -> None:
    assert cluster.node_names("x") == ["x-control-plane", "x-worker", "x-worker2", "x-worker3"]


@pytest.mark.parametrize("bad", ["Tdcs", "-a", "a_b", "a" * 41, "a b", "a/../b"])
def test_a_name_that_cannot_be_a_host_is_refused(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDCS_CLUSTER", bad)
    with pytest.raises(LocalError, match="cannot name a cluster"):
        cluster.name()


def test_the_configuration_has_one_control_plane_three_workers_and_tells_the_owner() -> None:
    images = NodeImages(control_plane="cp:1", worker="w:1")
    made = cluster.configuration(
        cluster="tdcs", images=images, transfer=Path("/mine/.local/transfer"), port=6443
    )
    assert [(node["role"], node["image"]) for node in made["nodes"]] == [
        ("control-plane", "cp:1"),
        *[("worker", "w:1")] * 3,
    ]
    mounts = {(m["hostPath"], m["readOnly"]) for node in made["nodes"] for m in node["extraMounts"]}
    assert mounts == {("/mine/.local/transfer", True)}
    assert made["networking"]["apiServerPort"] == 6443


def test_without_a_wish_the_api_gets_any_free_port() -> None:
    images = NodeImages(control_plane="a", worker="a")
    made = cluster.configuration(cluster="tdcs", images=images, transfer=Path("/t"), port=None)
    assert "apiServerPort" not in made["networking"]


@pytest.mark.parametrize("bad", ["http", "0", "70000", "-1"])
def test_a_wish_that_is_no_port_is_refused(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDCS_API_PORT", bad)
    with pytest.raises(LocalError, match="is no port"):
        cluster.api_port()


def test_a_kubeconfig_of_another_cluster_is_told_from_our_own() -> None:
    ours = "contexts:\n- name: kind-tdcs\n"
    assert access.foreign_contexts(ours) == []
    assert access.foreign_contexts("") == []
    assert access.foreign_contexts(f"{ours}- name: production\n") == ["production"]
    assert access.foreign_contexts("just text") == ["something that is no kubeconfig"]
    assert access.foreign_contexts("{") == ["something that is no kubeconfig"]


def test_removing_the_access_to_a_cluster_spares_that_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    monkeypatch.setattr(access, "KUBECONFIG", file)
    access.remove()
    file.write_text("contexts:\n- name: production\n")
    access.remove()
    assert file.exists()
    with pytest.raises(LocalError, match="holds the access to another cluster"):
        access.write("tdcs")
    assert "production" in file.read_text()
    file.write_text("contexts:\n- name: kind-tdcs\n")
    access.remove()
    assert not file.exists()
