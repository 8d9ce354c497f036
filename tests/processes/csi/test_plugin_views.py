"""Native views as kubelet and pods meet them: the plugin's process and real mounts; no master, and no worker."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.processes.csi.view_node import AWAY, HERE, ViewNode
from tests.support.dataplane.node import Node, needs_fuse
from tests.support.waiting import eventually
from tests.unit.node.csi.views.builders import drop_block, is_link, needs_overlays, put_blocks, refuse_block

pytestmark = needs_overlays


@pytest.fixture
def whole(node: Node) -> ViewNode:
    """All blocks are on the node; the plugin runs."""
    view = ViewNode(node, here={"here", "away"})
    view.mount_client()
    node.start_plugin()
    return view


@pytest.fixture
def partial(node: Node) -> ViewNode:
    """One block is on the node, the other file comes from the client; the plugin runs."""
    view = ViewNode(node, here={"here"})
    view.mount_client()
    node.start_plugin()
    return view


@pytest.mark.failure_mode("reader-worker-master-dead")
def test_a_pod_reads_the_blocks_themselves_with_neither_master_nor_worker(whole: ViewNode) -> None:
    volume = whole.publish()

    assert (volume / "train/away").read_text() == "away"
    assert (volume / "train/here").stat().st_ino == (whole.tier / f"agent/spool/{HERE}").stat().st_ino
    assert os.listdir(volume) == ["train"]


def test_nothing_of_the_cache_can_be_changed_through_a_volume(whole: ViewNode) -> None:
    volume = whole.publish()

    for change in (
        lambda: (volume / "train/here").write_text("changed"),
        lambda: (volume / "train/here").chmod(0o777),
        lambda: (volume / "train/here").unlink(),
        lambda: (volume / "new").touch(),
        lambda: os.utime(volume / "train/here", (0, 0)),
    ):
        with pytest.raises(OSError, match="Read-only file system"):
            change()
    (mount,) = whole.node.mounts(whole.node.target())
    assert {"ro", "nosuid", "nodev"} <= set(mount.split(" ")[5].split(","))


def test_what_is_not_here_is_read_through_the_client(partial: ViewNode) -> None:
    volume = partial.publish()

    assert (volume / "train/here").read_text() == "here"
    assert (volume / "train/away").read_text() == "AWAY"


def test_a_walk_finds_the_datasets_own_files_and_folders_only(partial: ViewNode) -> None:
    volume = partial.publish()

    assert {name for _, _, files in os.walk(volume, followlinks=True) for name in files} == {"here", "away"}
    assert os.listdir(volume) == ["train"]


def test_a_running_pod_sees_a_block_that_came_later(partial: ViewNode) -> None:
    volume = partial.publish()

    put_blocks(partial.tier, {AWAY: b"away"})

    eventually(lambda: is_link(volume / "train/away"), deadline=60)
    assert (volume / "train/away").read_text() == "away"


@pytest.mark.failure_mode("wrong-copy-read-natively")
def test_a_running_pod_loses_a_block_that_the_agent_has_refused_to_the_client(node: Node) -> None:
    view = ViewNode(node, here={"here", "away"})
    view.mount_client()
    node.start_plugin()
    volume = view.publish()
    assert (volume / "train/here").read_text() == "here"

    refuse_block(view.tier, HERE)

    eventually(lambda: (volume / "train/here").read_text() == "HERE", deadline=60, retry_on=(OSError,))
    assert (volume / "train/away").read_text() == "away"
    later = view.publish("pod-2")
    assert (later / "train/here").read_text() == "HERE"


def test_a_running_pod_reads_on_when_the_client_was_replaced(partial: ViewNode) -> None:
    volume = partial.publish()

    partial.node.unmount_client()
    partial.mount_client(str.title)

    eventually(lambda: (volume / "train/away").read_text() == "Away", deadline=60, retry_on=(OSError,))
    assert (volume / "train/here").read_text() == "here"


@needs_fuse
def test_a_running_pod_reads_on_when_the_client_died_and_came_back(node: Node) -> None:
    view = ViewNode(node, here={"here"})
    view.mount_client()
    node.start_plugin()
    volume = view.publish()
    node.unmount_client()
    client = node.silent_client()
    client.kill()
    client.wait()

    assert (volume / "train/here").read_text() == "here"
    node.unmount_client()
    view.mount_client(str.title)

    eventually(lambda: (volume / "train/away").read_text() == "Away", deadline=60, retry_on=(OSError,))


@needs_fuse
@pytest.mark.failure_mode("reader-and-master-hang")
def test_a_hanging_client_keeps_no_running_pod_from_what_is_here(whole: ViewNode) -> None:
    volume = whole.publish()
    whole.node.unmount_client()
    whole.node.silent_client()

    assert (volume / "train/away").read_text() == "away"
    whole.node.unpublish(whole.node.target())


def test_without_the_client_a_pod_is_told(node: Node) -> None:
    view = ViewNode(node, here={"here"})
    node.start_plugin()

    with pytest.raises(
        grpc.RpcError, match="needs the remote-read client of node node-a, which is not mounted"
    ):
        view.publish()

    assert node.mounts(node.target()) == []


def test_without_operator_and_list_a_pod_is_told_where_to_look(node: Node) -> None:
    node.start_plugin()

    with pytest.raises(grpc.RpcError) as caught:
        node.publish(node.target(), path="/datasets/other", timeout=60)

    text = str(caught.value.details())
    assert text.startswith("Dataset team/data: no list of the files of /datasets/other")
    assert "the operator does not answer" in text
    assert "kubectl get pods -A | grep operator" in text


@pytest.mark.failure_mode("node-plugin-killed")
def test_a_plugin_that_was_killed_disturbs_no_reader_and_goes_on(partial: ViewNode) -> None:
    volume = partial.publish()
    before = partial.node.mounts(partial.node.target())

    with (volume / "train/here").open() as reader:
        partial.node.kill_plugin(signal.SIGKILL)
        assert (volume / "train/away").read_text() == "AWAY"
        partial.node.start_plugin()
        assert partial.publish() == volume
        assert reader.read() == "here"

    assert partial.node.mounts(partial.node.target()) == before
    put_blocks(partial.tier, {AWAY: b"away"})
    eventually(lambda: is_link(volume / "train/away"), deadline=60)


def test_a_pod_keeps_a_block_that_its_client_could_not_replace(whole: ViewNode) -> None:
    volume = whole.publish()
    drop_block(whole.tier, HERE)

    eventually(
        lambda: "their bytes stay on its disk while pods use the view" in whole.node.log(),
        deadline=60,
        describe=whole.node.log,
    )
    assert (volume / "train/here").read_text() == "here"
    whole.node.unpublish(whole.node.target())

    (folder,) = (whole.tier / "views").glob("*/*/tree/train")
    eventually(lambda: not is_link(folder / "here"), deadline=60)


def test_many_pods_share_a_view_and_each_goes_alone(partial: ViewNode) -> None:
    names = [f"pod-{number}" for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        volumes = list(pool.map(partial.publish, names))
    assert {(volume / "train/away").read_text() for volume in volumes} == {"AWAY"}

    partial.node.unpublish(partial.node.target(names[0]))

    assert not volumes[0].exists()
    assert (volumes[1] / "train/away").read_text() == "AWAY"
