"""What certificates cost the operator in memory: two operators with the same work, one of which makes them.

A measurement, so it is a deep test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.controlplane.operator_command import install_rights, remove_cluster_wide, start_operator
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL, World, world
from tests.support.kube import Object, condition
from tests.support.programs.ports import free_ports
from tests.support.report import Measured

from tdcs.model.kube_resources import CACHE_CLUSTERS

__all__ = ["world"]

BAR_MIB = 25.0


@pytest.fixture
def release(world: World) -> Iterator[str]:
    """Service account and rights of the operator as the chart makes them."""
    name = f"tdcs-{world.cluster}"
    objects = install_rights(
        world.kube, release=name, namespace=world.namespace, templates=["operator-rbac", "operator"]
    )
    yield name
    remove_cluster_wide(world.plane, objects)


def cache_cluster(world: World) -> Object:
    """The cache cluster as it is now."""
    return world.kube.get(CACHE_CLUSTERS.kind, world.cluster, namespace=world.namespace)


def peak_mib(world: World, *, release: str, folder: Path, name: str, options: Sequence[str]) -> float:
    """The most memory that an operator has used when its Dataset is Ready, and its certificates are made."""
    (port,) = free_ports(1)
    process = start_operator(
        world.plane,
        release=release,
        namespace=world.namespace,
        engine={"sources": {SOURCE: FILES}, "workers": dict.fromkeys(world.nodes, 10 * TOTAL)},
        folder=folder,
        name=name,
        options=[f"--manifest-port={port}", *options],
    )
    world.create_dataset()
    world.wait_ready()
    if options:
        world.wait(lambda: condition(cache_cluster(world), "Trusted") == "True")
    text = Path(f"/proc/{process.pid}/status").read_text()
    world.kube.delete("Dataset", "pictures", namespace=world.namespace)
    world.wait(lambda: world.kube.find("Dataset", "pictures", namespace=world.namespace) is None)
    process.kill()
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    assert peak
    return int(peak[1]) / 1024


@pytest.mark.deep("none, it is a measurement")
def test_certificates_take_little_of_the_operators_memory(
    world: World, release: str, tmp_path: Path, measured: Measured
) -> None:
    world.create_cluster()
    without = peak_mib(world, release=release, folder=tmp_path, name="without", options=[])
    trusted = ["--trust=selfSigned", f"--trust-prefix={release}-trust"]
    with_them = peak_mib(world, release=release, folder=tmp_path, name="trusted", options=trusted)
    measured(f"operator's peak memory: {without:.0f} MiB, with certificates {with_them:.0f} MiB")
    assert with_them - without < BAR_MIB
