"""Blocks at other places than the default one: views are next to them, and link what can be linked."""

import signal
from pathlib import Path

import pytest
from tests.processes.csi.view_node import AWAY, HERE, ViewNode
from tests.support.dataplane.node import Node
from tests.support.waiting import eventually
from tests.unit.node.csi.views.builders import is_link, needs_overlays, put_blocks

pytestmark = needs_overlays


@pytest.fixture
def tier(node: Node) -> Path:
    """A folder for blocks that is elsewhere, and that the plugin sees."""
    folder = node.root / "nvme"
    node.share(folder)
    return folder


def test_a_tier_elsewhere_has_views_that_a_new_plugin_keeps_in_step(node: Node, tier: Path) -> None:
    view = ViewNode(node, here={"here"}, tiers=[tier])
    view.mount_client()
    node.start_plugin()

    volume = view.publish()

    assert (volume / "train/here").stat().st_ino == (view.tier / f"agent/spool/{HERE}").stat().st_ino
    assert (volume / "train/away").read_text() == "AWAY"
    node.kill_plugin(signal.SIGKILL)
    put_blocks(view.tier, {AWAY: b"away"})
    node.start_plugin()
    eventually(lambda: is_link(volume / "train/away"), deadline=60)
    assert (volume / "train/away").read_text() == "away"
    view.publish()  # kubelet may ask again
    assert len(node.mounts(node.target())) == 1


def test_a_second_tier_of_the_same_file_system_is_linked_too(node: Node, tier: Path) -> None:
    (tier / "second").mkdir()
    view = ViewNode(node, here={"here"}, tiers=[tier, tier / "second"])
    put_blocks(node.inside(tier / "second"), {AWAY: b"away"})
    view.mount_client()
    node.start_plugin()

    volume = view.publish()

    assert (volume / "train/away").read_text() == "away"
    assert is_link(volume / "train/away")
    assert is_link(volume / "train/here")


def test_what_a_tier_on_another_file_system_holds_is_read_remotely_and_the_log_says_so(
    node: Node, tier: Path
) -> None:
    memory = node.root / "memory"
    memory.mkdir()
    node.run("mount", "-t", "tmpfs", "memory", str(memory))
    view = ViewNode(node, here={"here"}, tiers=[tier, memory])
    put_blocks(node.inside(memory), {AWAY: b"away"})
    view.mount_client()
    node.start_plugin()

    volume = view.publish()

    assert (volume / "train/away").read_text() == "AWAY"
    assert (volume / "train/here").read_text() == "here"
    assert f"tier {memory} is on another file system than the views in {tier}" in node.log()


def test_a_tier_that_the_plugin_was_not_given_is_named_and_read_remotely(node: Node) -> None:
    view = ViewNode(node, here=set())
    view.tiers = "/mnt/not-there"
    view.mount_client()
    node.start_plugin()

    volume = view.publish()

    assert (volume / "train/here").read_text() == "HERE"
    assert "tier /mnt/not-there of cache cluster default" in node.log()
    assert "csi.tierFolders" in node.log()
