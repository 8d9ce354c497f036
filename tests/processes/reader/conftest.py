"""A node with a remote-read client, for the tests of this folder: real processes, a real FUSE session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.dataplane.readers import ReaderNode, reader_node
from tests.support.report import measured, pytest_terminal_summary, pytest_testnodedown

__all__ = ["measured", "node", "pytest_terminal_summary", "pytest_testnodedown"]


@pytest.fixture
def node() -> Iterator[ReaderNode]:
    """A node that is not started yet."""
    with reader_node() as node:
        yield node
