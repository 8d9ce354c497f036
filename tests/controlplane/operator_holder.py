"""The command `tdcs operator` that holds its Lease in a world: what it asks, and what its metrics say."""

from __future__ import annotations

import datetime
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.controlplane.operator_command import (
    allow_secrets,
    install_rights,
    remove_cluster_wide,
    start_operator,
)
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL, World
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process


class Holder:
    """An operator's process with the rights of the chart, and its Lease.

    Args:
        folder: for what describes its engine.
        env: further variables of its process.
    """

    def __init__(self, world: World, *, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.world = world
        self._env = env
        self.release = f"tdcs-{world.cluster}"
        self.user = f"system:serviceaccount:{world.namespace}:{self.release}-operator"
        self._objects = install_rights(
            world.kube,
            release=self.release,
            namespace=world.namespace,
            templates=["operator-rbac", "operator"],
            values={"trust.enabled": False},
        )
        allow_secrets(world.kube, release=self.release, namespace=world.namespace)
        (self._metrics,) = free_ports(1)
        self._folder = folder
        self.process = self.start("operator", f"--metrics-port={self._metrics}")
        self.pid = self.process.pid

    def start(self, name: str, *options: str) -> Process:
        """One of its operators."""
        return start_operator(
            self.world.plane,
            release=self.release,
            namespace=self.world.namespace,
            engine={
                "sources": {SOURCE: FILES},
                "workers": dict.fromkeys(self.world.nodes, 10 * TOTAL),
                "bytesPerSecond": 20_000_000,
            },
            folder=self._folder,
            name=name,
            options=options,
            env=self._env,
        )

    def metric(self, name: str) -> float:
        """A metric without labels; -1 while the process does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return -1
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), -1)

    def give(self, holder: str) -> None:
        """Write a holder into the Lease, as one that has just renewed it does."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "renewTime": now}
        self.world.kube.patch(
            "Lease", f"{self.release}-operator", {"spec": spec}, namespace=self.world.namespace
        )

    def writes(self, *, since: int) -> list[str]:
        """What it asked to be changed, but Leases and Events."""
        return [
            f"{call.verb} {call.resource} {call.namespace}/{call.name}"
            for call in self.world.plane.audit.calls(user=self.user, since=since)
            if call.writes and call.resource not in ("leases", "events")
        ]

    def lease_reads(self, *, since: int) -> int:
        """How often it has looked at its Lease."""
        calls = self.world.plane.audit.calls(user=self.user, since=since)
        return sum((call.verb, call.resource) == ("get", "leases") for call in calls)

    def remove(self) -> None:
        """What does not go with the namespace."""
        remove_cluster_wide(self.world.plane, self._objects)
