"""What Kubernetes makes of the Jobs that serve claims: their pods, each a real process, with the Secret that is there.

Claims are folders of this machine. All processes listen at one port, so that one pod runs at a time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from tests.unit.control.server import Server

from tdcs.api import names
from tdcs.control.dataset.access.claim_server_objects import MOUNTED_AT
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS

_LOOK_SECONDS = 0.05


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class ClaimPods:
    """The pods of claims, by a look at the API server again and again.

    Attributes:
        claims: the folder of each claim.
        held: whether no pod is made just now.
        made: the Jobs whose pods were made, in turn.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.claims: dict[Key, Path] = {}
        self.held = False
        self.made: list[str] = []
        (self.port,) = free_ports(1)
        self._server = server
        self._folder = folder
        self._numbers = itertools.count()
        self._running: dict[Key, tuple[str, Process]] = {}
        server.jobs_end_as = "Suspended"  # a condition that ends none

    async def create_claim(self, namespace: str, name: str, folder: Path, **fields: Object) -> None:
        self.claims[namespace, name] = folder
        obj = {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"accessModes": ["ReadWriteMany"]},
            "status": {"phase": "Bound"},
            **fields,
        }
        await self._server.create(PERSISTENT_VOLUME_CLAIMS, obj=obj)

    @property
    def processes(self) -> list[Process]:
        """Those that run."""
        return [process for _, process in self._running.values()]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.create_task(self._run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            for _, process in self._running.values():
                await asyncio.to_thread(process.kill)

    async def _run(self) -> None:
        while True:
            jobs = self._server.store(JOBS)
            for key, (uid, process) in list(self._running.items()):
                job = jobs.get(key)
                if job is None or job["metadata"]["uid"] != uid or not process.alive:
                    await asyncio.to_thread(process.kill)
                    del self._running[key]
                    # What Kubernetes' garbage collector does.
                    self._server.store(PODS).pop((key[0], f"{key[1]}-pod"), None)
                    if job is None:
                        self._server.store(SECRETS).pop(key, None)
            for key, job in list(jobs.items()):
                labels = job["metadata"].get("labels") or {}
                is_ours = labels.get(names.LABEL_COMPONENT) == names.COMPONENT_CLAIM_SERVER
                ready = is_ours and not job["spec"]["suspend"] and not self.held
                if ready and key not in self._running and not self._running:
                    await self._begin(key, job)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _begin(self, key: Key, job: Object) -> None:
        pod = job["spec"]["template"]["spec"]
        (claim,) = [
            volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
        ]
        (mounted,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        secret = self._server.store(SECRETS)[key[0], mounted["secretName"]]
        place = self._folder / f"secret-{next(self._numbers)}"
        place.mkdir()
        for name, value in secret["data"].items():
            (place / name).write_bytes(base64.b64decode(value))
        folder = self.claims[key[0], claim["claimName"]]
        values = {"--folder": str(folder), "--secret": str(place), "--port": str(self.port)}
        arguments = []
        for argument in pod["containers"][0]["args"]:
            option, _, value = argument.partition("=")
            local_value = values.get(option, value)
            if option == "--folder":
                local_value += value.removeprefix(MOUNTED_AT)
            arguments.append(f"{option}={local_value}" if value else argument)
        process = Process(
            name=key[1],
            argv=[sys.executable, "-m", "tdcs.cli", *arguments],
            log=self._folder / f"{key[1]}.log",
            ready=lambda: _listens(self.port),
        )
        await asyncio.to_thread(process.start)
        self._running[key] = (job["metadata"]["uid"], process)
        self.made.append(key[1])
        status = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        owner = {"kind": "Job", "name": key[1], "uid": job["metadata"]["uid"]}
        metadata = {"name": f"{key[1]}-pod", "namespace": key[0], "ownerReferences": [owner]}
        await self._server.create(PODS, obj={"kind": "Pod", "metadata": metadata, "status": status})
