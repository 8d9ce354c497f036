"""A cluster that was off for 100 days: all certificates have ended, and it works again by itself.

The operator's certificate code, Alluxio's processes and an agent are real; the API server is in memory. What kubelet
does is done here: changed Secrets come into pods' folders, and containers that have ended start again, with its pauses.
What kubelet may take to bring a Secret is added to the seconds that were measured, and not waited for.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engine.agents.agent_nodes import AgentCluster, AgentNode
from tests.engine.servers import AlluxioCluster, S3Server, random_network
from tests.support.certificates import DAY, TestAuthority, now
from tests.support.programs.processes import Process
from tests.support.report import Measured
from tests.support.waiting import eventually_async
from tests.unit.control.server import Server

from tdcs.alluxio.export_sweep import ExportSweep
from tdcs.alluxio.rpc import Rpc, RpcFailureError
from tdcs.api import names
from tdcs.control.release_certificates import LOOK_SECONDS, Certificates
from tdcs.model.kube_resources import SECRETS
from tdcs.trust.certificates import Subject, end_of
from tdcs.trust.roles import Role
from tdcs.trust.settings import TrustSettings

NODE = "node-1"
CAPACITY = 256 << 20
FILES = {f"{number:02}": os.urandom(30_000) for number in range(12)}
KUBELET_SECONDS = 90.0
"""So long kubelet may take to bring a changed Secret: its sync period and what its cache is behind."""
READY_SECONDS = 300.0
OWNER = {
    "apiVersion": names.API_VERSION,
    "kind": "CacheCluster",
    "metadata": {"name": "default", "uid": "uid-of-default"},
}


class Release:
    """The Secrets of a release, the processes that mount them, and who looks after both."""

    def __init__(self, cluster: AlluxioCluster, agents: AgentCluster) -> None:
        self.server = Server()
        host = cluster.worker_hosts[NODE]
        local = ("localhost", "127.0.0.1")
        self.subjects = {
            "default-master-trust": Subject(role=Role.MASTER, hosts=(cluster.master_host, *local)),
            "default-worker-trust": Subject(role=Role.WORKER, hosts=(host, *local)),
            "default-agent-trust": Subject(role=Role.AGENT, hosts=(host, *local)),
        }
        folder = agents.nodes[NODE].trust
        assert folder is not None
        self.folders = {
            "default-master-trust": cluster.trust_folder("master"),
            "default-worker-trust": cluster.trust_folder(NODE),
            "default-agent-trust": folder,
        }

    def operator(self, *, ago: datetime.timedelta = datetime.timedelta()) -> Certificates:
        """The certificate code of an operator that runs now, or ran then."""
        return Certificates(
            api=self.server,
            namespace="tdcs-system",
            settings=TrustSettings(provider="selfSigned", prefix="tdcs-trust"),
            now=lambda: now() - ago,
            clock=lambda: time.monotonic() + ago.total_seconds(),
        )

    async def keep(self, certificates: Certificates) -> None:
        """Pass over the cache cluster as the operator does, until cancelled."""
        while True:
            await certificates.provide(owner=OWNER, subjects=self.subjects)
            await asyncio.sleep(LOOK_SECONDS / 4)

    def secret(self, name: str) -> Mapping[str, bytes]:
        data = self.server.store(SECRETS)["tdcs-system", name]["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def mount(self) -> None:
        """Bring Secrets into the folders of the pods, each by one exchange of a link, as kubelet does."""
        for name, folder in self.folders.items():
            secret_data, link = self.secret(name), folder / "..data"
            present = link / "tls.crt"
            if present.exists() and present.read_bytes() == secret_data["tls.crt"]:
                continue
            version = folder / f"..{time.monotonic_ns()}"
            version.mkdir()
            for key, content in secret_data.items():
                (version / key).write_bytes(content)
            new = folder / "..new"
            new.symlink_to(version.name)
            new.rename(link)
            for key in secret_data:
                (folder / key).unlink(missing_ok=True)
                (folder / key).symlink_to(Path("..data") / key)

    async def mount_changed(self) -> None:
        """Bring Secrets whenever they have changed, until cancelled."""
        while True:
            self.mount()
            await asyncio.sleep(1)


def pauses() -> Iterator[float]:
    """Seconds that kubelet waits before it starts a container again that has ended."""
    pause = 10.0
    while True:
        yield pause
        pause = min(2 * pause, 300)


async def run(process: Process) -> None:
    """Start a container, and again whenever it has ended, until cancelled."""
    waits = pauses()
    while True:
        if not process.alive:
            process.launch()
        while process.alive:  # noqa: ASYNC110 - of a process
            await asyncio.sleep(0.2)
        await asyncio.sleep(next(waits))


async def run_worker(agent: AgentNode, worker: Process) -> None:
    """Start a worker's pod: its init container, then worker and agent."""
    await agent.prepare()
    async with in_background(run(worker), run(agent.process)):
        await asyncio.Event().wait()


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """While the body runs, these run as well; the failure of one of them is the body's."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def nothing() -> list[str]:
    """The paths that are mounted."""
    return []


# Starts of JVMs, and the pauses before one that has ended starts again.
@pytest.mark.timeout(600)
async def test_a_cluster_that_was_off_for_100_days_is_ready_by_itself_in_five_minutes(
    alluxio_home: Path, s3: S3Server, tmp_path: Path, measured: Measured
) -> None:
    s3.make_bucket("absence")
    s3.put_files("absence", {f"data/{name}": content for name, content in FILES.items()})
    cluster = AlluxioCluster(
        home=alluxio_home,
        folder=tmp_path / "alluxio",
        network=random_network(),
        workers={NODE: CAPACITY},
        overrides={},
        authority=TestAuthority(),  # its certificates are replaced before anything starts
    )
    identities: list[Certificates] = []
    master = Rpc(target=cluster.target, patience=0.5, identify=lambda: identities[-1].identify())
    exports = ExportSweep(master=master, root=names.ENGINE_DATASETS_ROOT, mounts=nothing)
    agents = AgentCluster(
        cluster=cluster,
        folder=tmp_path / "manifests",
        capacity=CAPACITY,
        identify=lambda: identities[-1].identify(),
    )
    release = Release(cluster, agents)
    before = release.operator(ago=100 * DAY)
    await before.provide(owner=OWNER, subjects=release.subjects)
    identities.append(before)
    release.mount()
    assert all(end_of(release.secret(name)["tls.crt"]) < now() - 9 * DAY for name in release.subjects)
    agent = agents.nodes[NODE]

    async def live() -> bool:
        with contextlib.suppress(RpcFailureError):
            await exports.folders()
            return True
        return False

    cluster.master.launch()
    try:
        async with in_background(run(cluster.master), run_worker(agent, cluster.workers[NODE])):
            await asyncio.to_thread(cluster.master.wait_ready)
            with pytest.raises(RpcFailureError) as refused:
                await exports.folders()
            assert refused.value.distrusted
            begin = time.monotonic()
            operator = release.operator()
            identities.append(operator)
            async with in_background(release.keep(operator), release.mount_changed()):
                await eventually_async(
                    live, deadline=READY_SECONDS, describe=lambda: str(cluster.logs())[-3000:]
                )
                agents.connect()
                version = await agents.version(s3.source("s3://absence/data"))
                await eventually_async(lambda: agents.state(NODE) is not None, deadline=READY_SECONDS)
                await agents.give(NODE, version)
                await agents.holds(NODE, version, deadline=READY_SECONDS)
                assert agent.content(version) == FILES
                await agents.exported(version.manifest.path, FILES, NODE)
                seconds = time.monotonic() - begin
        measured(
            f"100 days off: data of a new Dataset on its node and in Alluxio {seconds:.1f} s after the operator's "
            f"start, without the {KUBELET_SECONDS:.0f} s that kubelet may take"
        )
        assert seconds + KUBELET_SECONDS < READY_SECONDS
    finally:
        await agents.close()
        await master.close()
        cluster.stop()
