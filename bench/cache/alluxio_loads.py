"""Alluxio's own ways of loading, on the processes of a benchmark, for comparison with the product's.

Two of them: the one that its master drives (`fs load --submit`, since 2.9.1), and the older distributedLoad, which a
job service of further processes carries out. Nothing of either is part of the product.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click
from tests.engine.servers import AlluxioCluster, listens
from tests.support.programs.processes import Process

from tdcs.alluxio import profile
from tdcs.alluxio.profile import AlluxioRole
from tdcs_local import programs

MIB = 1 << 20
JOB_MASTER_PORT = 20001
JOB_WORKER_PORT = 30001
JOB_HEAP = {"master": 256 * MIB, "worker": 128 * MIB}

# The product's settings of clients keep reads from making copies. The job service makes its copies by such reads, so
# it gets what Alluxio has by default.
_DEFAULTS = (
    "-Dalluxio.user.file.passive.cache.enabled=true",
    "-Dalluxio.user.ufs.block.read.location.policy=alluxio.client.block.policy.LocalFirstPolicy",
)


class JobService:
    """Alluxio's job master, and a job worker next to each of the cluster's workers.

    Args:
        cluster: one that runs.
    """

    def __init__(self, *, cluster: AlluxioCluster) -> None:
        self._cluster = cluster
        self.libraries = programs.ensure("alluxio-job") / "lib"
        self.master = self._process(
            name="job-master",
            main="alluxio.master.AlluxioJobMaster",
            heap=JOB_HEAP["master"],
            options=[],
            ready=self._master_serves,
        )
        self.workers = [
            self._process(
                name=f"job-{node}",
                main="alluxio.worker.AlluxioJobWorker",
                heap=JOB_HEAP["worker"],
                options=[
                    f"-Dalluxio.job.worker.hostname={host}",
                    f"-Dalluxio.job.worker.bind.host={host}",
                    f"-Dalluxio.job.worker.web.bind.host={host}",
                    f"-Dalluxio.worker.hostname={host}",
                    f"-Dalluxio.user.hostname={host}",
                    f"-Dalluxio.locality.node={node}",
                ],
                ready=lambda host=host: listens(host, JOB_WORKER_PORT),  # type: ignore[misc]
            )
            for node, host in cluster.worker_hosts.items()
        ]

    @property
    def client_options(self) -> list[str]:
        """JVM options with which a client finds the job service."""
        return [*self._cluster.client_options, f"-Dalluxio.job.master.hostname={self._cluster.master_host}"]

    def start(self) -> None:
        """Start the master, then the workers, and wait until all of them listen."""
        self.master.start()
        for process in self.workers:
            process.launch()
        for process in self.workers:
            process.wait_ready()

    def stop(self) -> None:
        """Kill all of them."""
        for process in (*self.workers, self.master):
            process.kill()

    def _master_serves(self) -> bool:
        # Its port is open long before it knows its methods, and a worker that asks too early ends.
        host = self._cluster.master_host
        return "Primary started" in self.master.tail(lines=200) and listens(host, JOB_MASTER_PORT)

    def _process(
        self, *, name: str, main: str, heap: int, options: Sequence[str], ready: Callable[[], bool]
    ) -> Process:
        return Process(
            name=name,
            argv=[
                "java",
                *profile.java_options(
                    role=AlluxioRole.WORKER, heap_bytes=heap, processors=os.cpu_count() or 1
                ),
                *self.client_options,
                *(
                    f"-Dalluxio.job.master.{part}bind.host={self._cluster.master_host}"
                    for part in ("", "web.")
                ),
                *_DEFAULTS,
                f"-Dlog4j.configuration=file:{self._cluster.home}/conf/log4j.properties",
                f"-Djava.io.tmpdir={self._cluster.folder}",
                *options,
                *("-cp", f"{self.libraries}/*", main),
            ],
            log=self._cluster.folder / "logs" / f"{name}.log",
            ready=ready,
            start_deadline=120,
        )


@asynccontextmanager
async def job_service(cluster: AlluxioCluster) -> AsyncIterator[JobService]:
    """One that runs until the block ends. It takes a while to start, in which agents are followed on."""
    service = await asyncio.to_thread(lambda: JobService(cluster=cluster))
    try:
        await asyncio.to_thread(service.start)
        yield service
    finally:
        service.stop()


async def master_driven(cluster: AlluxioCluster, path: str) -> float:
    """Load `path` as Alluxio's master does it; seconds from the submission to the end.

    Raises:
        click.ClickException: It did not succeed.
    """
    return await _run(
        program="AlluxioLoad.java",
        libraries=cluster.libraries,
        options=cluster.client_options,
        arguments=[path],
        good="SUCCEEDED",
    )


async def distributed(service: JobService, path: str, *, batch: int) -> float:
    """Load `path` by distributedLoad with `batch` files in a job (1 is Alluxio's default); seconds, as above.

    Raises:
        click.ClickException: It did not succeed.
    """
    return await _run(
        program="DistributedLoad.java",
        libraries=service.libraries,
        options=service.client_options,
        arguments=[path, str(batch)],
        good="COMPLETED",
    )


async def _run(
    *, program: str, libraries: Path, options: Sequence[str], arguments: Sequence[str], good: str
) -> float:
    source = Path(__file__).with_name(program)
    command = ["java", "-cp", f"{libraries}/*", *options, str(source), *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    words = output.decode().split()
    if process.returncode or good not in words:
        raise click.ClickException(f"Alluxio's own load failed: {output.decode()} {errors.decode()[-800:]}")
    return float(words[words.index("seconds") + 1])
