"""Which table of holders a version goes by."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.support.dataplane.readers import (
    CLUSTER,
    HERE,
    ReaderNode,
    reader_node,
    small_version,
    table_of,
)

from tdcs.engine.holder_table import Holder
from tdcs.node.reader.registration import write_atomically
from tdcs.node.reader.serving.open_versions import OpenVersions


@pytest.fixture
def node() -> Iterator[ReaderNode]:
    with reader_node() as node:
        yield node


MALFORMED = {
    "no table": b"\x93nonsense",
    "a bitmap that is too short": msgspec.msgpack.encode(
        table_of(Holder(node="false", address="10.0.0.2:1", complete=b"", present=b"\x80"))
    ),
    "a text that is none": msgspec.msgpack.encode(table_of(HERE)).replace(b"here", b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.threat("agent-false-state")
def test_a_malformed_table_is_said_once_and_the_last_one_is_gone_by(
    node: ReaderNode, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    version = small_version(node.folder, {"a": b"a"})
    node.register(version, tables=table_of(HERE))
    versions, name = OpenVersions(folder=node.own, node="elsewhere"), f"{CLUSTER}.{version.manifest.digest}"
    opened = versions.named(name)
    assert opened is not None
    assert opened.holders(100) == (HERE.address,)

    write_atomically(node.own.holders / name, content)
    versions.refresh()
    versions.refresh()
    assert opened.holders(100) == (HERE.address,)
    assert len([text for text in caplog.messages if "the last one is used" in text]) == 1

    holder = Holder(node="other", address="10.0.0.3:1", present=HERE.present)
    node.table(version, table_of(holder))
    versions.refresh()
    assert opened.holders(100) == (holder.address,)


@pytest.mark.failure_mode("node-power-lost-at-registration")
def test_two_versions_with_one_number_show_nothing_of_each_other(
    node: ReaderNode, caplog: pytest.LogCaptureFixture
) -> None:
    roots = [node.register(small_version(node.folder / name, {name: name.encode()})).name for name in "ab"]
    first, second = (node.own.registered.read(root) for root in roots)
    assert first is not None
    assert second is not None
    before = OpenVersions(folder=node.own, node="here")
    opened = before.named(roots[0])
    assert opened is not None

    stolen = msgspec.structs.replace(second, number=first.number)
    write_atomically(node.own.versions / roots[1], msgspec.json.encode(stolen))
    before.refresh()
    assert before.named(roots[1]) is None
    assert before.get(first.number) is opened
    after = OpenVersions(folder=node.own, node="here")
    assert [after.named(root) for root in roots] == [None, None]
    assert after.get(first.number) is None
    assert "its number" in caplog.text

    write_atomically(node.own.versions / roots[1], msgspec.json.encode(second))
    after.refresh()
    version_after = after.get(first.number)
    assert version_after is not None
    assert version_after.name == roots[0]


def test_a_version_that_is_registered_with_another_number_is_not_known_by_the_one_before(
    node: ReaderNode,
) -> None:
    root = node.register(small_version(node.folder, {"a": b"a"})).name
    before = node.own.registered.read(root)
    assert before is not None
    versions = OpenVersions(folder=node.own, node="here")
    assert versions.get(before.number) is not None

    after = msgspec.structs.replace(before, number=before.number + 1)
    write_atomically(node.own.versions / root, msgspec.json.encode(after))
    versions.refresh()
    assert versions.get(before.number) is None
    assert versions.get(after.number) is not None
