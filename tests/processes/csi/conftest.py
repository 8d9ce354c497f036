"""A node in miniature, for the tests of this folder."""

from collections.abc import Iterator

import pytest
from tests.processes.csi.view_node import ViewNode
from tests.support.dataplane.node import Node, cannot_mount, miniature_node


@pytest.fixture
def node() -> Iterator[Node]:
    """A node without a remote-read client and without a running plugin."""
    if reason := cannot_mount():
        pytest.skip(f"real mounts are not tested: {reason}")
    with miniature_node() as node:
        yield node


@pytest.fixture
def running(node: Node) -> Node:
    """The node with a dataset, a client and the plugin running, which answers at once whether all is there."""
    view = ViewNode(node, here={"here"})
    view.mount_client()
    node.start_plugin()
    return node
