"""Whose cluster it is, what is left of it, and how kind is asked for one."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tdcs_local import host, shell
from tdcs_local.cli import main
from tdcs_local.containers import node_image
from tdcs_local.containers.node_image import NodeImages
from tdcs_local.errors import LocalError
from tdcs_local.kind import audit, cluster, kubeconfig
from tdcs_local.kind.cluster_state import Answer, Node, State, certainly_gone, judge, well
from tdcs_local.paths import CHECKOUT

EXPECTED = cluster.node_names("tdcs")
ALL_WELL = Answer(ready=True, nodes=frozenset(EXPECTED), well=frozenset(EXPECTED), complete="tdcs/node:1")


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
        pytest.param(
            nodes(), Answer(ready=False, joined=False), State.BROKEN, id="killed before Kubernetes answered"
        ),
        pytest.param(nodes(), Answer(ready=False), State.SILENT, id="slow, or its kubeconfig is missing"),
        pytest.param(
            nodes(), replace(ALL_WELL, well=frozenset(EXPECTED[:3])), State.UNWELL, id="a node is not ready"
        ),
        pytest.param(
            nodes(),
            replace(ALL_WELL, nodes=frozenset(EXPECTED[:3]), well=frozenset(EXPECTED[:3])),
            State.UNWELL,
            id="a node of a complete cluster is registered no more",
        ),
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
    assert judge(nodes=found, expected=EXPECTED, owner="/mine", answer=answer) is state


def api_node(name: str, *, ready: str = "True", gpus: str = "4") -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"gpu": gpus}}
    return {"metadata": {"name": name}, "status": status}


def test_a_worker_is_well_when_it_is_ready_and_has_its_gpus() -> None:
    found = [
        api_node("control-plane", gpus="0"),
        api_node("good"),
        api_node("poor", gpus="0"),
        api_node("late", ready="Unknown"),
        {"metadata": {"name": "new"}, "status": {}},
    ]
    workers = ["good", "poor", "late", "new"]
    assert well(found, workers=workers, resource="gpu", amount=4) == {"control-plane", "good"}
    assert well(found) == {"control-plane", "good", "poor"}


def test_a_checkout_is_gone_only_if_its_place_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    (there / "deploy").mkdir(parents=True)
    (tmp_path / "again/.local/transfer").mkdir(parents=True)
    assert not certainly_gone(there)
    assert certainly_gone(tmp_path / "removed")
    assert certainly_gone(tmp_path / "again"), (
        "the engine made the mounted folder again, nothing else is there"
    )
    assert not certainly_gone(tmp_path / "unmounted/checkout"), "where its folder is may be out of sight"

    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    assert not certainly_gone(tmp_path / "removed")


@pytest.mark.parametrize(
    ("running", "answers", "owner", "abandoned"),
    [
        pytest.param(False, False, "removed", True, id="left by a run that was killed with its engine"),
        pytest.param(True, False, "removed", True, id="its nodes were started again, but serve nobody"),
        pytest.param(True, True, "removed", False, id="it works"),
        pytest.param(False, False, "there", False, id="stopped, and its checkout is there"),
        pytest.param(False, False, "", False, id="made by hand with kind"),
    ],
)
def test_whose_cluster_may_be_replaced(
    running: bool,
    answers: bool,
    owner: str,
    abandoned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "there/deploy").mkdir(parents=True)
    found = nodes(running=running, owner=str(tmp_path / owner) if owner else "")
    monkeypatch.setattr(cluster, "nodes", lambda name: found)
    monkeypatch.setattr(shell, "succeeds", lambda command: answers)
    assert cluster.abandoned("tdcs") is abandoned


@pytest.fixture
def second_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that has made no cluster, with KUBECONFIG of the one that has; the result is that one."""
    first = tmp_path / "first"
    monkeypatch.setenv("KUBECONFIG", str(first / ".local/kubeconfig"))
    monkeypatch.setattr(cluster, "CHECKOUT", tmp_path / "second")
    monkeypatch.setattr(cluster, "KUBECONFIG", tmp_path / "second/.local/kubeconfig")
    monkeypatch.setattr(host, "engine_answers", lambda: True)
    monkeypatch.setattr(cluster, "nodes", lambda name: nodes(owner=str(first)))
    monkeypatch.setattr(shell, "capture", lambda *_, **__: pytest.fail("no command of a cluster is run"))
    return first


@pytest.mark.parametrize("command", [["store", "status"], ["store", "up"], ["install"], ["uninstall"]])
def test_a_second_checkout_reads_how_to_use_the_cluster_that_is_there(
    second_checkout: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    with pytest.raises(SystemExit):
        main(command, standalone_mode=False)
    said = capsys.readouterr().err
    assert f"it was made by {second_checkout}" in said
    assert "whatever KUBECONFIG says" in said
    assert f"run this command in {second_checkout}" in said
    assert f"export KUBECONFIG={second_checkout}/.local/kubeconfig" in said
    assert "repairs" not in said


def test_without_any_cluster_make_up_is_the_remedy(
    second_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "nodes", lambda name: [])
    with pytest.raises(LocalError) as error:
        cluster.access()
    assert error.value.remedy == "make up"


def test_a_cluster_of_another_node_image_is_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    images = NodeImages(control_plane="i", worker="i-worker")
    monkeypatch.setattr(cluster, "nodes", lambda name: nodes())
    monkeypatch.setattr(node_image, "references", lambda: images)
    assert not cluster.older("tdcs")
    monkeypatch.setattr(node_image, "references", lambda: replace(images, control_plane="j"))
    assert cluster.older("tdcs")


def test_a_node_that_never_joined_is_known_from_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking: set[str] = set()

    def ask(command: list[str], timeout: float) -> str:
        if command[2] == EXPECTED[0]:
            raise LocalError(what="docker exec failed")  # cannot be asked: no reason to call it unmade
        return "lacking" if command[2] in lacking else ""

    monkeypatch.setattr(shell, "capture", ask)
    monkeypatch.setattr(cluster, "KUBECONFIG", Path("/nowhere/kubeconfig"))
    monkeypatch.setattr(
        cluster, "nodes", lambda name: nodes(owner=str(CHECKOUT), names=cluster.node_names(name))
    )
    assert cluster.look("tdcs") is State.SILENT
    lacking.add(EXPECTED[2])
    assert cluster.look("tdcs") is State.BROKEN


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


def test_the_api_server_logs_what_tdcs_asks_by_a_policy_that_nodes_see(tmp_path: Path) -> None:
    images = NodeImages(control_plane="a", worker="a")
    made = cluster.configuration(cluster="tdcs", images=images, transfer=tmp_path, port=None)
    (patch,) = made["kubeadmConfigPatches"]
    server = yaml.safe_load(patch)["apiServer"]
    mounts = {one["mountPath"]: one for one in server["extraVolumes"]}
    given = mounts[server["extraArgs"]["audit-policy-file"]]
    audit.write_policy(tmp_path)
    seen = tmp_path / Path(given["hostPath"]).relative_to(cluster.NODE_TRANSFER)
    rules = json.loads(seen.read_text())["rules"]
    assert rules == [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:tdcs-system"]},
        {"level": "None"},
    ]
    assert not mounts[str(Path(server["extraArgs"]["audit-log-path"]).parent)].get("readOnly")


def test_controllers_and_scheduler_of_the_only_control_plane_have_no_lease_to_lose() -> None:
    images = NodeImages(control_plane="a", worker="a")
    made = cluster.configuration(cluster="tdcs", images=images, transfer=Path("/t"), port=None)
    (patch,) = made["kubeadmConfigPatches"]
    assert "&" not in patch
    for part in ("controllerManager", "scheduler"):
        assert yaml.safe_load(patch)[part] == {"extraArgs": {"leader-elect": "false"}}


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
    assert kubeconfig.foreign_contexts(ours) == []
    assert kubeconfig.foreign_contexts("") == []
    assert kubeconfig.foreign_contexts(f"{ours}- name: production\n") == ["production"]
    assert kubeconfig.foreign_contexts("just text") == ["something that is no kubeconfig"]
    assert kubeconfig.foreign_contexts("{") == ["something that is no kubeconfig"]


def test_removing_the_access_to_a_cluster_spares_that_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    monkeypatch.setattr(kubeconfig, "KUBECONFIG", file)
    kubeconfig.remove()
    file.write_text("contexts:\n- name: production\n")
    kubeconfig.remove()
    assert file.exists()
    with pytest.raises(LocalError, match="holds the access to another cluster"):
        kubeconfig.write("tdcs")
    assert "production" in file.read_text()
    file.write_text("contexts:\n- name: kind-tdcs\n")
    kubeconfig.remove()
    assert not file.exists()
