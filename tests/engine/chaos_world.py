"""What a chaos run does things to: a real Alluxio, store, agents, node plugin, and the controllers of the data.

The API server is in memory. Three Datasets: `steady` never changes, and a pod reads it all the time; `moving` has
files that come, change and go; `passing` is created and deleted.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from tests.engine.agents.agent_nodes import AgentCluster
from tests.engine.servers import AlluxioCluster, S3Server
from tests.engine.views.viewing import Bench, digest, native, sums_of
from tests.support.chaos import Fault, PossibleFault, Step
from tests.support.programs.processes import Process
from tests.unit.control.cluster import Cluster

from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.model.agent_state import ALL_SLOTS
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUMES

STEADY, MOVING, PASSING = "steady", "moving", "passing"
OPERATOR = "operator"
SETTLED_SECONDS = 300.0
FILES = 24
FAULT_SECONDS = (0.2, 4.0)
"""A fault lasts for at least and at most so long."""


class FaultKind(StrEnum):
    """What happens to a part."""

    KILL = "kill"
    PAUSE = "pause"


class Change(StrEnum):
    """What a user does meanwhile."""

    ADD = "add a file"
    REPLACE = "replace a file"
    REMOVE = "remove a file"
    TOGGLE = "create or delete a Dataset"


class PodReads:
    """A pod that reads files of a volume, one after the other and again, and compares each with what it must be."""

    def __init__(self, volume: Path, sums: Mapping[str, str]) -> None:
        self.wrong: list[str] = []
        self.count = 0
        self._volume, self._sums = volume, sums
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PodReads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while True:
            for name, expected in self._sums.items():
                if self._stop.wait(0.005):
                    return
                try:
                    digest_read = digest((self._volume / name).read_bytes())
                except OSError as error:
                    self.wrong.append(f"{name}: {error}")
                else:
                    self.count += 1
                    if digest_read != expected:
                        self.wrong.append(f"{name}: other bytes")


class ChaosWorld:
    """All parts, and what the sources have.

    Args:
        alluxio: is told of what the agents hold.
        bench: a node.
        agents: beside Alluxio's workers.
        operator: the controllers.
        seed: of names and contents.
    """

    def __init__(
        self, *, alluxio: AlluxioCluster, bench: Bench, agents: AgentCluster, operator: Cluster, seed: int
    ) -> None:
        self.alluxio, self.bench, self.agents, self.operator = alluxio, bench, agents, operator
        self._drawn = random.Random(seed)
        self._asked = 0
        self.sources: dict[str, dict[str, bytes]] = {}
        self.processes: dict[str, Process] = {
            "master": alluxio.master,
            "store": self.store.process,
            **{f"worker of {node}": process for node, process in alluxio.workers.items()},
            **{f"agent of {node}": agent.process for node, agent in agents.nodes.items()},
        }

    @property
    def store(self) -> S3Server:
        return self.bench.s3

    @property
    def possible(self) -> list[PossibleFault]:
        """What may happen. The operator is a part of this process, which cannot be paused."""
        killed = [
            PossibleFault(kind=FaultKind.KILL, part=part, seconds=FAULT_SECONDS)
            for part in (OPERATOR, *self.processes)
        ]
        paused = [
            PossibleFault(kind=FaultKind.PAUSE, part=part, seconds=FAULT_SECONDS) for part in self.processes
        ]
        return killed + paused

    async def begin(self) -> Path:
        """Create the Datasets, and a pod that has all of the steady one natively; its volume."""
        pair = self.store.credentials
        await self.operator.create_keys("keys", account=pair.access_key_id, key=pair.secret_access_key)
        await self.operator.create_cache(sources=[{"name": "store", "endpoints": [self.store.endpoint]}])
        for name in (STEADY, MOVING, PASSING):
            self.store.make_bucket(bucket(name))
            self.sources[name] = {f"f{number:03}": self._content() for number in range(FILES)}
            self.store.put_files(bucket(name), self.sources[name])
        await self._create(STEADY)
        await self._create(MOVING)
        await self.settled()
        self.bench.tables = self._holders
        volume = await self.bench.publish_path(self.path_of(STEADY))
        await self.operator.until(
            lambda: native(volume) == set(self.sources[STEADY]), deadline=SETTLED_SECONDS
        )
        return volume

    def _holders(self, _: str) -> HolderTable:
        """Every agent may have all blocks of a mount."""
        agents = [
            Holder(node=node, address=agent.address, present=ALL_SLOTS)
            for node, agent in self.agents.nodes.items()
        ]
        return HolderTable(holders=tuple(agents), revision=1)

    async def run(self, step: Step) -> None:
        """The changes of a round, and its faults."""
        for change in step.changes:
            await self._change(Change(change))
        await asyncio.gather(*map(self._fail, step.faults))

    async def settled(self) -> None:
        """Wait until every Dataset is loaded, in the version that its source has now."""
        self._asked += 1
        await self.operator.until(lambda: not self._leaving(), deadline=SETTLED_SECONDS)
        names = [name for _, name in self.operator.server.store(DATASETS)]
        for name in names:
            await self.operator.annotate(name, refresh=str(self._asked))
        await self.operator.until(lambda: all(map(self._is_loaded, names)), deadline=SETTLED_SECONDS)

    def end_state(self) -> dict[str, object]:
        """What is known of the Datasets, without what depends on the time."""
        fields = (
            "state",
            "totalFiles",
            "totalBytes",
            "cachedBytes",
            "physicalBytes",
            "mountPath",
            "claimName",
        )
        return {
            name: (
                {field: self.operator.status(name).get(field) for field in fields},
                self.operator.nodes(name),
            )
            for _, name in self.operator.server.store(DATASETS)
        }

    async def restart_operator(self) -> None:
        """The operator is killed, and another one begins with nothing in its memory."""
        await self.operator.stop()
        await self.operator.start()

    async def read_again(self) -> dict[str, dict[str, str]]:
        """The checksums that a new pod reads of each Dataset."""
        sums_by_name = {}
        for _, name in list(self.operator.server.store(DATASETS)):
            volume = await self.bench.publish_path(self.path_of(name))
            sums_by_name[name] = await asyncio.to_thread(sums_of, volume)
            await asyncio.to_thread(self.bench.unpublish, volume)
        return sums_by_name

    def sums(self) -> dict[str, dict[str, str]]:
        """The checksums that the sources have."""
        return {
            name: {file: digest(content) for file, content in self.sources[name].items()}
            for _, name in self.operator.server.store(DATASETS)
        }

    async def remove_all(self) -> None:
        """Delete the Datasets, and wait until nothing is left of them."""
        server = self.operator.server
        for _, name in list(server.store(DATASETS)):
            await server.delete(DATASETS, name=name, namespace="n")
        await self.operator.until(lambda: not server.store(DATASETS), deadline=SETTLED_SECONDS)
        await self.operator.until(lambda: not self.leaks(), deadline=SETTLED_SECONDS)
        assert not server.store(PERSISTENT_VOLUMES)

    def leaks(self) -> list[str]:
        """Files of blocks that are left on the nodes, by whichever name."""
        lent = [file for node in self.agents.nodes for file in self.alluxio.block_files(node).values()]
        folders = [
            folder
            for agent in self.agents.nodes.values()
            for folder in (agent.disk.spool, agent.disk.kept_folder, agent.disk.large.folders.whole)
        ]
        return [str(file) for file in (*lent, *(file for folder in folders for file in folder.iterdir()))]

    def path_of(self, name: str) -> str:
        return str(self.operator.status(name)["mountPath"])

    async def _create(self, name: str) -> None:
        source = self.store.source(f"s3://{bucket(name)}")
        await self.operator.create_dataset(
            name,
            source={"uri": source.uri, "options": {**source.options, "pathStyle": True}},
            placement={"mode": "Replicate", "nodeCount": 2},
        )

    async def _change(self, change: Change) -> None:
        files = self.sources[MOVING]
        if change is Change.TOGGLE:
            if ("n", PASSING) not in self.operator.server.store(DATASETS):
                await self._create(PASSING)
            elif not self._leaving():
                await self.operator.server.delete(DATASETS, name=PASSING, namespace="n")
            return
        if change is Change.REMOVE and len(files) > FILES // 2:
            name = self._drawn.choice(sorted(files))
            del files[name]
            await asyncio.to_thread(self.store.delete, bucket(MOVING), name)
        else:
            new = change is Change.ADD or len(files) <= FILES // 2
            name = f"n{self._drawn.randrange(10**6):06}" if new else self._drawn.choice(sorted(files))
            files[name] = self._content()
            await asyncio.to_thread(self.store.put, bucket(MOVING), name, files[name])
        self._asked += 1
        await self.operator.annotate(MOVING, refresh=str(self._asked))

    async def _fail(self, fault: Fault) -> None:
        if fault.part == OPERATOR:
            await self.operator.stop()
            await asyncio.sleep(fault.seconds)
            await self.operator.start()
            return
        process = self.processes[fault.part]
        if fault.kind == FaultKind.PAUSE:
            process.pause()
            await asyncio.sleep(fault.seconds)
            process.resume()
            return
        process.kill()
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(process.start)

    def _leaving(self) -> bool:
        datasets = self.operator.server.store(DATASETS).values()
        return any(dataset["metadata"].get("deletionTimestamp") for dataset in datasets)

    def _is_loaded(self, name: str) -> bool:
        status, files = self.operator.status(name), self.sources[name]
        return (
            status.get("state") == "Ready"
            and status.get("refreshed") == str(self._asked)
            and status.get("totalFiles") == len(files)
            and status.get("totalBytes") == sum(map(len, files.values()))
            and len(self.operator.nodes(name)) == 2
            and set(self.operator.nodes(name).values()) == {status["totalBytes"]}
        )

    def _content(self) -> bytes:
        return self._drawn.randbytes(self._drawn.randrange(1, 60_000))


def bucket(name: str) -> str:
    return f"chaos-{name}"
