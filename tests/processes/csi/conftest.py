"""A node in miniature, for the tests of this folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.node import Node, cannot_mount, dies_with_us
from tests.support.waiting import eventually


@pytest.fixture
def node() -> Iterator[Node]:
    """A node without a cache cluster and without a running plugin."""
    if reason := cannot_mount():
        pytest.skip(f"real mounts are not tested: {reason}")
    holder = subprocess.Popen(
        dies_with_us("unshare", "--mount", "--propagation=private", "sleep", "infinity")
    )
    # Not pytest's tmp_path: a socket's path may have 107 bytes.
    this = Node(root=Path(tempfile.mkdtemp(prefix="tdcs-csi-")).resolve(), namespace=holder.pid)
    try:
        own = os.readlink("/proc/self/ns/mnt")
        eventually(lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != own, deadline=60)
        # As on a real node, folders that plugins and clients mount into are shared with those who watch them.
        for folder in (this.fuse_root, this.kubelet, this.cache_root):
            this.share(folder)
        yield this
    finally:
        for process in reversed(this.processes):
            process.kill()
            process.wait()
        holder.kill()
        holder.wait()
        shutil.rmtree(this.root)


@pytest.fixture
def running(node: Node) -> Node:
    """The node with the plugin running, which answers at once whether a folder is there."""
    node.start_plugin()
    return node
