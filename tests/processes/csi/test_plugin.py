"""The plugin as kubelet meets it: a process, its sockets, and real mounts on a node of its own."""

import re
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from tests.processes.csi.view_node import ViewNode
from tests.support.dataplane.node import NODE, Node, needs_fuse
from tests.support.waiting import eventually
from tests.unit.node.csi.views.builders import needs_overlays

from tdcs.node.csi import csi_service

pytestmark = needs_overlays

ATTACH = (
    "import os, sys; from tdcs.node.csi import bind_mount; "
    "bind_mount.{}(source=os.open(sys.argv[1], os.O_PATH), target=sys.argv[2])"
)


def code_and_text(error: Any) -> tuple[grpc.StatusCode, str]:
    return error.code(), error.details()


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """How the plugin refuses a call: the status, and what it says."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return code_and_text(caught.value)


def test_a_pod_reads_the_folder_and_nobody_can_write_to_it(running: Node) -> None:
    target = running.target()

    running.publish(target)

    assert running.inside(target / "train/here").read_text() == "here"
    with pytest.raises(OSError, match="Read-only file system"):
        running.inside(target / "new").touch()
    (mount,) = running.mounts(target)
    assert {"ro", "nosuid", "nodev"} <= set(mount.split(" ")[5].split(","))


def test_what_is_mounted_below_a_source_is_read_only_too_and_stays_when_it_is_taken_away(node: Node) -> None:
    source, target = node.reader_root / "source", node.target()
    for folder in (node.inside(source / "nested"), target):
        folder.mkdir(parents=True)
    node.run("mount", "-t", "tmpfs", "nested", str(source / "nested"))
    node.inside(source / "nested/deep").write_text("deep")

    node.run(sys.executable, "-c", ATTACH.format("attach"), str(source), str(target))

    assert node.inside(target / "nested/deep").read_text() == "deep"
    with pytest.raises(OSError, match="Read-only file system"):
        node.inside(target / "nested/new").touch()
    node.run(
        sys.executable,
        "-c",
        "import sys; from tdcs.node.csi import bind_mount; bind_mount.detach(target=sys.argv[1])",
        str(target),
    )
    assert node.inside(source / "nested/deep").read_text() == "deep"


def test_publish_and_unpublish_may_be_repeated(running: Node) -> None:
    target = running.target()

    for _ in range(3):
        running.publish(target)
    assert len(running.mounts(target)) == 1

    for _ in range(3):
        running.unpublish(target)
    assert running.mounts(target) == []
    assert not running.inside(target).exists()


@pytest.mark.threat("audit")
def test_the_audit_log_says_which_pod_was_given_which_path_and_when_that_went(running: Node) -> None:
    target = running.target()

    running.publish(target)
    running.unpublish(target)

    lines = running.log().splitlines()
    publish, unpublish = [line.partition(" tdcs.audit: ")[2] for line in lines if " tdcs.audit: " in line]
    assert publish.startswith("publish of volume tdcs.team.data for pod team/p: ")
    assert f": /datasets/0123456789abcdef of CacheCluster default at {target} in " in publish
    assert unpublish.startswith(f"unpublish of volume tdcs.team.data: {target} is gone")


def test_calls_for_many_pods_at_once_each_give_their_volume(running: Node) -> None:
    targets = [running.target(f"pod-{number}") for number in range(20)]

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(running.publish, targets))
        assert [len(running.mounts(target)) for target in targets] == [1] * 20
        list(pool.map(running.unpublish, targets))

    assert [len(running.mounts(target)) for target in targets] == [0] * 20


def test_concurrent_calls_for_one_target_mount_it_once(running: Node) -> None:
    target = running.target()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(running.publish, [target] * 8))

    assert len(running.mounts(target)) == 1


def test_a_volume_waits_for_the_client_to_come(node: Node) -> None:
    view = ViewNode(node, here={"here"})
    node.start_plugin(wait=20)
    target = node.target()

    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(node.publish, target, timeout=30)
        # An unpublish is served while the publish waits.
        node.unpublish(node.target("pod-2"))
        assert not published.done()
        view.mount_client()
        published.result(timeout=60)

    assert node.inside(target / "train/here").read_text() == "here"


def test_without_the_client_kubelet_is_told_to_try_again_and_why(running: Node) -> None:
    running.unmount_client()
    target = running.target()

    code, text = refused(lambda: running.publish(target))

    assert code == grpc.StatusCode.UNAVAILABLE
    assert f"needs the remote-read client of node {NODE}, which is not mounted" in text
    assert not running.inside(target).exists()


@pytest.mark.failure_mode("volume-not-given")
def test_the_event_of_a_pod_names_its_dataset_the_reason_and_what_to_look_at(running: Node) -> None:
    def told(**volume: str) -> str:
        return refused(lambda: running.publish(running.target(), **volume))[1]  # type: ignore[arg-type]

    without_list = told(path="/datasets/missing")
    running.unmount_client()
    without_client = told()

    for text, reason, remedy in (
        (without_client, "needs the remote-read client of node node-a", "grep tdcs-reader"),
        (
            without_list,
            "no list of the files of /datasets/missing",
            "kubectl get pods -A | grep operator",
        ),
    ):
        assert text.startswith("Dataset team/data: ")
        assert reason in text
        assert remedy in text
        assert len(text) < 800  # kubelet adds its own words, and an event has 1,024 characters


def test_bad_requests_are_refused_for_good(running: Node) -> None:
    bad: dict[str, Callable[[], None]] = {
        "path": lambda: running.publish(running.target(), path="/datasets/../../.."),
        "cluster": lambda: running.publish(running.target(), cluster="../fuse"),
        "target path": lambda: running.publish(running.root / "elsewhere"),
        "ReadOnlyMany": lambda: running.publish(running.target(), mode=1),
    }

    for sentence, call in bad.items():
        code, text = refused(call)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert sentence in text
    assert not (running.root / "elsewhere").exists()


@needs_fuse
@pytest.mark.failure_mode("reader-and-master-hang")
def test_a_hanging_client_blocks_neither_unpublish_nor_the_plugin(node: Node) -> None:
    view = ViewNode(node, here={"here"})
    view.mount_client()
    node.start_plugin(answer=2.0)
    node.publish(node.target())
    node.unmount_client()
    node.silent_client()

    with ThreadPoolExecutor(12) as pool:
        hanging = [pool.submit(node.publish, node.target(f"h{number}"), timeout=30) for number in range(12)]
        node.unpublish(node.target())
        errors = [call.exception(timeout=60) for call in hanging]

    for error in errors:
        assert isinstance(error, grpc.RpcError)
        code, text = code_and_text(error)
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "it does not show the version: no answer in time" in text
    assert node.plugin is not None
    assert psutil.Process(node.plugin.pid).num_threads() < 40


@needs_fuse
def test_a_dead_client_is_named_and_its_volume_can_be_taken_away_and_comes_back(node: Node) -> None:
    view = ViewNode(node, here={"here"})
    node.start_plugin()
    client = node.silent_client()
    target = node.target()
    # A pod had a volume of this client before it died.
    target.mkdir()
    node.run("mount", "--bind", str(node.client_point), str(target))
    client.kill()
    client.wait()

    code, text = refused(lambda: node.publish(target))
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "it does not show the version: " in text

    # The client is replaced: the same call gives the pod the new mount.
    node.unmount_client()
    view.mount_client()
    node.publish(target)
    assert len(node.mounts(target)) == 1
    assert node.inside(target / "train/away").read_text() == "AWAY"


@needs_fuse
def test_a_dead_volume_is_unpublished(node: Node) -> None:
    node.start_plugin()
    client = node.silent_client()
    target = node.target()
    target.mkdir()
    node.run("mount", "--bind", str(node.client_point), str(target))
    client.kill()
    client.wait()

    node.unpublish(target)

    assert node.mounts(target) == []
    assert not node.inside(target).exists()


def test_a_volume_in_use_is_taken_away_and_its_reader_reads_on(running: Node) -> None:
    target = running.target()
    running.publish(target)

    with running.inside(target / "train/here").open() as reader:
        running.unpublish(target)
        assert reader.read() == "here"

    assert not running.inside(target).exists()


def test_files_in_the_target_folder_are_never_deleted(running: Node) -> None:
    target = running.target()
    target.mkdir()
    (target / "precious").write_text("kept")

    code, text = refused(lambda: running.unpublish(target))

    assert code == grpc.StatusCode.INTERNAL
    assert "it holds files that no volume put there" in text
    assert (target / "precious").read_text() == "kept"


def test_a_killed_plugin_starts_again_over_its_old_sockets_and_mounts(running: Node) -> None:
    target = running.target()
    running.publish(target)

    running.kill_plugin(signal.SIGKILL)
    assert running.inside(target / "train/here").read_text() == "here"
    running.start_plugin()

    running.publish(target)
    assert len(running.mounts(target)) == 1
    running.unpublish(target)
    assert not running.inside(target).exists()


def test_a_stopped_plugin_leaves_volumes_alone_and_takes_its_registration_away(running: Node) -> None:
    target = running.target()
    running.publish(target)

    assert running.kill_plugin(signal.SIGTERM) == 0

    assert not running.registration_socket.exists()
    assert running.inside(target / "train/here").read_text() == "here"


def test_a_stopped_plugin_answers_what_still_waits_with_the_reason(node: Node) -> None:
    ViewNode(node, here={"here"})
    node.start_plugin(wait=60)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.publish, node.target(), timeout=90)
        eventually(lambda: "waiting up to 60 s" in node.log(), deadline=60)
        assert node.kill_plugin(signal.SIGTERM) == 0
        error = waiting.exception(timeout=60)

    assert "needs the remote-read client of node node-a" in code_and_text(error)[1]


def test_kubelet_learns_the_drivers_name_and_socket(running: Node) -> None:
    info = running.call(
        "pluginregistration.Registration/GetInfo",
        csi_service.message(name="pluginregistration.InfoRequest")(),
        answer="pluginregistration.PluginInfo",
        socket=running.registration_socket,
    )
    node = running.call(
        "csi.v1.Node/NodeGetInfo",
        csi_service.message(name="csi.v1.NodeGetInfoRequest")(),
        answer="csi.v1.NodeGetInfoResponse",
        socket=Path(info.endpoint),
    )

    assert (info.type, info.name, list(info.supported_versions)) == ("CSIPlugin", "csi.tdcs.io", ["1.0.0"])
    assert node.node_id == NODE


def test_a_plugin_that_kubelet_refuses_ends_with_kubelets_reason(running: Node) -> None:
    running.call(
        "pluginregistration.Registration/NotifyRegistrationStatus",
        csi_service.message(name="pluginregistration.RegistrationStatus")(
            plugin_registered=False, error="taken"
        ),
        answer="pluginregistration.RegistrationStatusResponse",
        socket=running.registration_socket,
    )

    assert running.plugin is not None
    assert running.plugin.wait(timeout=60) == 1
    assert re.search(r"kubelet of node node-a refused driver csi\.tdcs\.io: taken", running.log())


def test_the_plugin_is_light(running: Node) -> None:
    running.publish(running.target())

    assert running.plugin is not None
    # Its own memory: how much of libraries' files is mapped besides depends on the kernel and its page cache.
    memory = psutil.Process(running.plugin.pid).memory_info()
    assert memory.rss - memory.shared < 38 * 2**20


def test_a_kernel_without_the_newer_calls_is_served_by_the_older_one(node: Node) -> None:
    source, target = node.reader_root / "source", node.target()
    for folder in (source, target):
        folder.mkdir()
    node.inside(source / "file").write_text("text")

    node.run(sys.executable, "-c", ATTACH.format("attach_classic"), str(source), str(target))

    assert node.inside(target / "file").read_text() == "text"
    with pytest.raises(OSError, match="Read-only file system"):
        node.inside(target / "new").touch()
    (mount,) = node.mounts(target)
    assert {"ro", "nosuid", "nodev"} <= set(mount.split(" ")[5].split(","))


@pytest.mark.parametrize("namespace", ["stranger", ""])
@pytest.mark.threat("dataset-of-another-namespace")
def test_a_volume_is_for_pods_of_its_own_namespace(running: Node, namespace: str) -> None:
    target = running.target()
    with pytest.raises(grpc.RpcError) as refused:
        running.publish(target, namespace=namespace)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "for pods of namespace team" in str(refused.value.details())
    assert not running.mounts(target)


@pytest.mark.parametrize("handle", ["x", "tdcs.team.data.x", "tdcs.team", ""])
@pytest.mark.threat("dataset-of-another-namespace")
def test_a_volume_that_is_none_of_a_dataset_is_refused(running: Node, handle: str) -> None:
    target = running.target()
    with pytest.raises(grpc.RpcError, match=r"tdcs\.NAMESPACE\.NAME|volume"):
        running.publish(target, volume=handle)
    assert not running.mounts(target)
