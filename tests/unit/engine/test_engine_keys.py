"""The engine hides the keys of what is mounted, and forgets them with the mount."""

from collections.abc import Mapping

import grpc
import pytest

from tdcs.alluxio import alluxio_engine as module
from tdcs.alluxio.alluxio_engine import AlluxioEngine
from tdcs.alluxio.master import MountEntry, Page
from tdcs.alluxio.mount_uri import source_uri
from tdcs.alluxio.rpc import RpcFailureError
from tdcs.model.cache_engine import Credentials, EngineError, Source, WorkerInfo

PATH = "/datasets/1"
OLD, NEW = "o1d-hidden", "n3w-hidden"


class GossipingMaster:
    """A master without a worker, which complains with every key that it ever saw."""

    target = "master:1"

    def __init__(self, **_: object) -> None:
        self.table: dict[str, MountEntry] = {}
        self.gossip = False

    async def mount_table(self) -> dict[str, MountEntry]:
        return self.table

    async def mount(self, *, path: str, uri: str, properties: Mapping[str, str], update: bool) -> None:
        self.table[path] = MountEntry(uri=source_uri(uri), properties=properties)

    async def unmount(self, *, path: str) -> None:
        del self.table[path]

    async def page(self, **_: object) -> Page:
        return Page(files=[], last=None)

    async def workers(self) -> list[WorkerInfo]:
        if self.gossip:
            raise RpcFailureError(code=grpc.StatusCode.INTERNAL, text=f"I know {OLD} and {NEW}")
        return []

    async def create_folder(self, *, path: str) -> None: ...

    async def learn(self, **_: object) -> None: ...

    async def pin(self, **_: object) -> None: ...

    async def remove_path_properties(self, *, path: str) -> None: ...


def source(key: str) -> Source:
    keys = Credentials(access_key_id="me-myself", secret_access_key=key)
    return Source(uri="s3://bucket/prefix", credentials=keys)


async def complaint(engine: AlluxioEngine, master: GossipingMaster) -> str:
    master.gossip = True
    with pytest.raises(EngineError) as failed:
        await engine.workers()
    master.gossip = False
    return str(failed.value)


async def test_keys_are_hidden_while_they_are_in_use_and_forgotten_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = GossipingMaster()
    monkeypatch.setattr(module, "Master", lambda **_: master)
    engine = AlluxioEngine(master="master:1")

    await engine.mount(path=PATH, source=source(OLD))
    told = await complaint(engine, master)
    assert OLD not in told
    assert NEW in told

    await engine.mount(path=PATH, source=source(NEW))
    told = await complaint(engine, master)
    assert NEW not in told
    assert OLD in told, "a key that was replaced needs no hiding"

    await engine.unmount(path=PATH)
    assert NEW in await complaint(engine, master)
