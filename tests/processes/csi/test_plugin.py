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
from tests.support.dataplane.node import NODE, Node, needs_fuse
from tests.support.waiting import eventually

from tdcs.node.csi import csi_descriptors

FILES = {"datasets/abc/train/1.jpg": "one", "datasets/other/2.jpg": "two"}


def code_and_text(error: Any) -> tuple[grpc.StatusCode, str]:
    return error.code(), error.details()


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """How the plugin refuses a call: the status, and what it says."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return code_and_text(caught.value)


def test_a_pod_reads_the_folder_and_nobody_can_write_to_it(running: Node) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()

    running.publish(target)

    assert running.inside(target / "train/1.jpg").read_text() == "one"
    with pytest.raises(OSError, match="Read-only file system"):
        running.inside(target / "new").touch()
    (mount,) = running.mounts(target)
    assert {"ro", "nosuid", "nodev"} <= set(mount.split(" ")[5].split(","))


def test_what_is_mounted_below_the_source_is_read_only_too_and_stays_when_the_volume_goes(
    running: Node,
) -> None:
    running.mount_cluster(files=FILES)
    nested = running.fuse_root / "default/datasets/abc/nested"
    running.inside(nested).mkdir()
    running.run("mount", "-t", "tmpfs", "nested", str(nested))
    running.inside(nested / "deep").write_text("deep")
    target = running.target()

    running.publish(target)

    assert running.inside(target / "nested/deep").read_text() == "deep"
    with pytest.raises(OSError, match="Read-only file system"):
        running.inside(target / "nested/new").touch()
    running.unpublish(target)
    assert running.inside(nested / "deep").read_text() == "deep"
    assert not running.inside(target).exists()


def test_publish_and_unpublish_may_be_repeated(running: Node) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()

    for _ in range(3):
        running.publish(target)
    assert len(running.mounts(target)) == 1

    for _ in range(3):
        running.unpublish(target)
    assert running.mounts(target) == []
    assert not running.inside(target).exists()


def test_the_audit_log_says_which_pod_was_given_which_path_and_when_that_went(running: Node) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()

    running.publish(target)
    running.unpublish(target)

    lines = running.log().splitlines()
    given, gone = [line.partition(" tdcs.audit: ")[2] for line in lines if " tdcs.audit: " in line]
    assert given.startswith("publish of volume tdcs.team.data for pod team/p: ")
    assert f": /datasets/abc of CacheCluster default at {target} in " in given
    assert gone.startswith(f"unpublish of volume tdcs.team.data: {target} is gone")


def test_calls_for_many_pods_at_once_each_give_their_volume(running: Node) -> None:
    running.mount_cluster(files=FILES)
    targets = [running.target(f"pod-{number}") for number in range(20)]

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(running.publish, targets))
        assert [len(running.mounts(target)) for target in targets] == [1] * 20
        list(pool.map(running.unpublish, targets))

    assert [len(running.mounts(target)) for target in targets] == [0] * 20


def test_concurrent_calls_for_one_target_mount_it_once(running: Node) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(running.publish, [target] * 8))

    assert len(running.mounts(target)) == 1


def test_a_volume_waits_for_the_fuse_mount_to_come(node: Node) -> None:
    node.start_plugin(wait=20)
    target = node.target()

    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(node.publish, target, timeout=30)
        # An unpublish is served while the publish waits.
        node.unpublish(node.target("pod-2"))
        assert not published.done()
        node.mount_cluster(files=FILES)
        published.result(timeout=60)

    assert node.inside(target / "train/1.jpg").read_text() == "one"


def test_without_a_fuse_mount_kubelet_is_told_to_try_again_and_why(running: Node) -> None:
    (running.fuse_root / "default/datasets/abc").mkdir(parents=True)  # a folder, but no mount
    target = running.target()

    code, text = refused(lambda: running.publish(target))

    assert code == grpc.StatusCode.UNAVAILABLE
    assert f"cache cluster default is not mounted on node {NODE}" in text
    assert not running.inside(target).exists()


def test_a_folder_without_any_file_is_not_published_for_its_mount_may_have_failed(running: Node) -> None:
    running.mount_cluster(files=FILES)
    running.inside(running.fuse_root / "default/datasets/hollow").mkdir()

    code, text = refused(lambda: running.publish(running.target(), path="/datasets/hollow"))

    assert code == grpc.StatusCode.UNAVAILABLE
    assert "folder /datasets/hollow of cache cluster default is empty" in text


def test_without_the_datasets_folder_kubelet_is_told_to_try_again_and_why(running: Node) -> None:
    running.mount_cluster(files=FILES)

    code, text = refused(lambda: running.publish(running.target(), path="/datasets/missing"))

    assert code == grpc.StatusCode.UNAVAILABLE
    assert "folder /datasets/missing is not in cache cluster default" in text


def test_the_event_of_a_pod_names_its_dataset_the_reason_and_what_to_look_at(running: Node) -> None:
    def told(**volume: str) -> str:
        return refused(lambda: running.publish(running.target(), **volume))[1]  # type: ignore[arg-type]

    without_client = told()
    running.mount_cluster(files=FILES)
    without_folder = told(path="/datasets/missing")

    for text, reason, remedy in (
        (without_client, "cache cluster default is not mounted on node node-a", "grep default-fuse"),
        (without_client, "not mounted", "kubectl describe cacheclusters -A"),
        (
            without_folder,
            "folder /datasets/missing is not in cache cluster default",
            "kubectl get datasets -A",
        ),
    ):
        assert text.startswith("Dataset team/data: ")
        assert reason in text
        assert remedy in text
        assert len(text) < 800  # kubelet adds its own words, and an event has 1,024 characters


@pytest.mark.parametrize("link", ["/", "../other"])
def test_a_link_inside_the_cache_is_not_followed(running: Node, link: str) -> None:
    running.mount_cluster(files=FILES)
    running.inside(running.fuse_root / "default/datasets/link").symlink_to(link)

    with pytest.raises(grpc.RpcError, match="symbolic link"):
        running.publish(running.target(), path="/datasets/link")


def test_bad_requests_are_refused_for_good(running: Node) -> None:
    running.mount_cluster(files=FILES)
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
def test_a_hanging_fuse_client_blocks_neither_other_volumes_nor_unpublish(node: Node) -> None:
    node.start_plugin(answer=2.0)
    node.silent_fuse("hung")
    node.mount_cluster("default", files=FILES)

    with ThreadPoolExecutor(12) as pool:
        hanging = [
            pool.submit(node.publish, node.target(f"h{number}"), cluster="hung", timeout=30)
            for number in range(12)
        ]
        target = node.target()
        node.publish(target)
        node.unpublish(target)
        errors = [call.exception(timeout=60) for call in hanging]

    for error in errors:
        assert isinstance(error, grpc.RpcError)
        code, text = code_and_text(error)
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "did not answer" in text
    assert node.plugin is not None
    assert psutil.Process(node.plugin.pid).num_threads() < 40


@needs_fuse
def test_a_dead_fuse_client_is_named_and_its_volume_can_be_taken_away_and_comes_back(running: Node) -> None:
    client = running.silent_fuse()
    target = running.target()
    # A pod had a volume of this client before it died.
    target.mkdir()
    running.run("mount", "--bind", str(running.fuse_root / "default"), str(target))
    client.kill()
    client.wait()

    code, text = refused(lambda: running.publish(target))
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "its FUSE client has died" in text

    # The client is replaced: the same call gives the pod the new mount.
    running.run("umount", "--lazy", str(running.fuse_root / "default"))
    running.mount_cluster(files=FILES)
    running.publish(target)
    assert len(running.mounts(target)) == 1
    assert running.inside(target / "train/1.jpg").read_text() == "one"


@needs_fuse
def test_a_dead_volume_is_unpublished(running: Node) -> None:
    client = running.silent_fuse()
    target = running.target()
    target.mkdir()
    running.run("mount", "--bind", str(running.fuse_root / "default"), str(target))
    client.kill()
    client.wait()

    running.unpublish(target)

    assert running.mounts(target) == []
    assert not running.inside(target).exists()


def test_a_volume_in_use_is_taken_away_and_its_reader_reads_on(running: Node) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()
    running.publish(target)

    with running.inside(target / "train/1.jpg").open() as reader:
        running.unpublish(target)
        assert reader.read() == "one"

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
    running.mount_cluster(files=FILES)
    target = running.target()
    running.publish(target)

    running.kill_plugin(signal.SIGKILL)
    assert running.inside(target / "train/1.jpg").read_text() == "one"
    running.start_plugin()

    running.publish(target)
    assert len(running.mounts(target)) == 1
    running.unpublish(target)
    assert not running.inside(target).exists()


def test_a_stopped_plugin_leaves_volumes_alone_and_takes_its_registration_away(running: Node) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()
    running.publish(target)

    assert running.kill_plugin(signal.SIGTERM) == 0

    assert not running.registration_socket.exists()
    assert running.inside(target / "train/1.jpg").read_text() == "one"


def test_a_stopped_plugin_answers_what_still_waits_with_the_reason(node: Node) -> None:
    node.start_plugin(wait=60)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.publish, node.target(), timeout=90)
        eventually(lambda: "waiting up to 60 s" in node.log(), deadline=60)
        assert node.kill_plugin(signal.SIGTERM) == 0
        error = waiting.exception(timeout=60)

    assert "cache cluster default is not mounted" in code_and_text(error)[1]


def test_kubelet_learns_the_drivers_name_and_socket(running: Node) -> None:
    info = running.call(
        "pluginregistration.Registration/GetInfo",
        csi_descriptors.message(name="pluginregistration.InfoRequest")(),
        answer="pluginregistration.PluginInfo",
        socket=running.registration_socket,
    )
    node = running.call(
        "csi.v1.Node/NodeGetInfo",
        csi_descriptors.message(name="csi.v1.NodeGetInfoRequest")(),
        answer="csi.v1.NodeGetInfoResponse",
        socket=Path(info.endpoint),
    )

    assert (info.type, info.name, list(info.supported_versions)) == ("CSIPlugin", "csi.tdcs.io", ["1.0.0"])
    assert node.node_id == NODE


def test_a_plugin_that_kubelet_refuses_ends_with_kubelets_reason(running: Node) -> None:
    running.call(
        "pluginregistration.Registration/NotifyRegistrationStatus",
        csi_descriptors.message(name="pluginregistration.RegistrationStatus")(
            plugin_registered=False, error="taken"
        ),
        answer="pluginregistration.RegistrationStatusResponse",
        socket=running.registration_socket,
    )

    assert running.plugin is not None
    assert running.plugin.wait(timeout=60) == 1
    assert re.search(r"kubelet of node node-a refused driver csi\.tdcs\.io: taken", running.log())


def test_the_plugin_is_light(running: Node) -> None:
    running.mount_cluster(files=FILES)
    running.publish(running.target())

    assert running.plugin is not None
    assert psutil.Process(running.plugin.pid).memory_info().rss < 64 * 2**20


def test_a_kernel_without_the_newer_calls_is_served_by_the_older_one(node: Node) -> None:
    node.mount_cluster(files=FILES)
    target = node.target()
    target.mkdir()
    source = node.fuse_root / "default/datasets/abc"
    attach = (
        "import os, sys; from tdcs.node.csi import mount; "
        "mount.attach_classic(source=os.open(sys.argv[1], os.O_PATH), target=sys.argv[2])"
    )

    node.run(sys.executable, "-c", attach, str(source), str(target))

    assert node.inside(target / "train/1.jpg").read_text() == "one"
    with pytest.raises(OSError, match="Read-only file system"):
        node.inside(target / "new").touch()
    (mount,) = node.mounts(target)
    assert {"ro", "nosuid", "nodev"} <= set(mount.split(" ")[5].split(","))


@pytest.mark.parametrize("namespace", ["stranger", ""])
def test_a_volume_is_for_pods_of_its_own_namespace(running: Node, namespace: str) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()
    with pytest.raises(grpc.RpcError) as refused:
        running.publish(target, namespace=namespace)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "for pods of namespace team" in str(refused.value.details())
    assert not running.mounts(target)


@pytest.mark.parametrize("handle", ["x", "tdcs.team.data.x", "tdcs.team", ""])
def test_a_volume_that_is_none_of_a_dataset_is_refused(running: Node, handle: str) -> None:
    running.mount_cluster(files=FILES)
    target = running.target()
    with pytest.raises(grpc.RpcError, match=r"tdcs\.NAMESPACE\.NAME|volume"):
        running.publish(target, volume=handle)
    assert not running.mounts(target)
