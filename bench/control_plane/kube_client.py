"""What the Kubernetes client costs: import, memory, lists, patches and watch events. Prints one JSON line.

A real API server with some thousand pods; each client in a process of its own, in turn. The clients are

* ``ours``: this checkout's `KubeApi`, the package `kubernetes` below it and plain JSON above;
* ``generated``: the same package used as its documentation shows, with generated calls and typed models;
* ``before``: the `KubeApi` of another checkout, given by ``--before FOLDER`` (lightkube over httpx2 up to commit
  65b6cc1; its packages must be on PYTHONPATH).

Each figure is the least of the rounds, which other work on the machine disturbs least; CPU is the client's process
alone. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator python bench/control_plane/kube_client.py --before ../other-checkout
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

CHECKOUT = Path(__file__).parents[2]
NAMESPACE = "bench"
PARALLEL = 8
REPLAYS = 5
"""So many times the events of the patches are read again, for one time is too short to be measured."""

BAR = 1.15
"""Ours may take so many times the CPU of the client before it, in each task."""

Figures = dict[str, float]


@click.group(invoke_without_command=True)
@click.option("--pods", default=5000, show_default=True, type=click.IntRange(min=1))
@click.option("--patches", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--before", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.pass_context
def main(context: click.Context, pods: int, patches: int, rounds: int, before: Path | None) -> None:
    """Compare the clients on one API server."""
    if context.invoked_subcommand:
        return
    # Not in the processes of the clients: it imports the package `kubernetes`.
    from tests.support.controlplane import ControlPlane

    trees = {"ours": CHECKOUT, "generated": CHECKOUT} | ({"before": before} if before else {})
    measured: dict[str, list[Figures]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="kube-client-") as folder,
        ControlPlane(folder=Path(folder)) as plane,
    ):
        plane.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        plane.wait_for_namespace(NAMESPACE)
        plane.kube.create_many(pod(number) for number in range(pods))
        for number in range(rounds):
            # Who comes first meets other caches than who comes last.
            for client, tree in list(trees.items())[:: -1 if number % 2 else 1]:
                measured[client].append(
                    run(client, tree, kubeconfig=plane.kubeconfig, pods=pods, patches=patches)
                )
    result: dict[str, Any] = {
        "pods": pods,
        "patches": patches,
        "watchEvents": REPLAYS * patches,
        "rounds": rounds,
    }
    for client, rows in measured.items():
        result[client] = {name: round(min(row[name] for row in rows), 4) for name in rows[0]}
    if before:
        ratios = {
            name: round(result["ours"][name] / result["before"][name], 2)
            for name in result["ours"]
            if result["before"][name]
        }
        result["oursOverBefore"] = ratios
        result["passed"] = all(ratios[f"{task}Cpu"] <= BAR for task in ("list", "patch", "watch"))
    click.echo(json.dumps(result))


def pod(number: int) -> dict[str, Any]:
    """A pod that no scheduler takes, of the size of a training job's."""
    container = {
        "name": "trainer",
        "image": "registry.example/train:1",
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 40} for index in range(20)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{number:05d}",
            "namespace": NAMESPACE,
            "labels": {f"label-{index}": "value" for index in range(8)},
        },
        "spec": {"containers": [container], "schedulerName": "none"},
    }


def run(client: str, tree: Path, *, kubeconfig: Path, pods: int, patches: int) -> Figures:
    """All tasks of one client, in a fresh process."""
    python = [sys.executable, str(Path(__file__).resolve())]
    paths = [str(tree / "operator"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def output(*arguments: str) -> Figures:
        process = subprocess.run(
            [*python, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        if process.returncode:
            raise click.ClickException(f"client {client!r} failed:\n{process.stderr[-2000:]}")
        figures: Figures = json.loads(process.stdout)
        return figures

    client_option = ["--client", client]
    amounts = ["--kubeconfig", str(kubeconfig), "--pods", str(pods), "--patches", str(patches)]
    return {
        **output("importing", *client_option),
        **{
            f"{name}BesideKopf": value
            for name, value in output("importing", *client_option, "--kopf").items()
        },
        **output("working", *client_option, *amounts),
    }


@main.command(hidden=True)
@click.option("--client", required=True)
@click.option("--kopf", is_flag=True)
def importing(client: str, kopf: bool) -> None:
    """What the import of a client costs, alone or in a process that has kopf."""
    if kopf:
        import kopf as _  # noqa: F401
    memory, began, modules = resident_mb(), time.process_time(), len(sys.modules)
    make(client)
    click.echo(
        json.dumps(
            {
                "importCpu": time.process_time() - began,
                "importMegabytes": resident_mb() - memory,
                "importModules": len(sys.modules) - modules,
            }
        )
    )


@main.command(hidden=True)
@click.option("--client", required=True)
@click.option("--kubeconfig", required=True, type=click.Path(path_type=Path))
@click.option("--pods", required=True, type=int)
@click.option("--patches", required=True, type=int)
def working(client: str, kubeconfig: Path, pods: int, patches: int) -> None:
    """List all pods, patch some, and read the events of these patches."""
    click.echo(json.dumps(asyncio.run(work(make(client), kubeconfig, pods=pods, patches=patches))))


async def work(connect: Connect, kubeconfig: Path, *, pods: int, patches: int) -> Figures:
    """The figures of one client."""
    figures: Figures = {}
    calls = await connect(kubeconfig)
    await calls.list()  # the first one opens connections, and imports what is imported late
    with timed(figures, "list"):
        count, version = await calls.list()
    if count != pods:
        raise click.ClickException(f"{count} pods were listed, not {pods}")
    figures["listPeakMegabytes"] = peak_mb()
    gate = asyncio.Semaphore(PARALLEL)

    async def patch(number: int) -> None:
        async with gate:
            await calls.patch(f"train-{number % pods:05d}", time.monotonic_ns())

    with timed(figures, "patch"):
        await asyncio.gather(*map(patch, range(patches)))
    with timed(figures, "watch"):
        for _ in range(REPLAYS):
            await calls.watch(version, patches)
    await calls.close()
    return figures


@contextmanager
def timed(figures: Figures, task: str) -> Iterator[None]:
    """Seconds of a block, by the clock and of this process' CPU."""
    wall, cpu = time.monotonic(), time.process_time()
    yield
    figures[f"{task}Wall"], figures[f"{task}Cpu"] = time.monotonic() - wall, time.process_time() - cpu


def resident_mb() -> float:
    """Resident memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def peak_mb() -> float:
    """The most resident memory that this process has had; getrusage counts that of the one that started it, too."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


class Calls:
    """The tasks, for a `KubeApi`."""

    def __init__(self, api: Any) -> None:
        from tdcs.model.kube_resources import PODS

        self._api, self._pods = api, PODS

    async def list(self) -> tuple[int, str]:
        """How many pods there are, and where a watch goes on."""
        pods = await self._api.list(self._pods, namespace=NAMESPACE)
        return len(pods.items), pods.resource_version

    async def patch(self, name: str, value: int) -> None:
        """Change an annotation."""
        patch = {"metadata": {"annotations": {"bench": str(value)}}}
        await self._api.merge(self._pods, name=name, namespace=NAMESPACE, patch=patch)

    async def watch(self, version: str, count: int) -> None:
        """Read so many changes since a version."""
        events = self._api.watch(self._pods, resource_version=version, namespace=NAMESPACE)
        async for event in events:
            count -= event.type == "MODIFIED"
            if not count:
                break
        await events.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()


class GeneratedCalls(Calls):
    """The tasks, with the package's generated calls."""

    def __init__(self, client: Any) -> None:
        from kubernetes.aio.client import CoreV1Api

        self._client, self._core = client, CoreV1Api(client)

    async def list(self) -> tuple[int, str]:
        """How many pods there are, and where a watch goes on."""
        pods: list[Any] = []
        following = None
        while True:
            page = await self._core.list_namespaced_pod(NAMESPACE, limit=500, _continue=following)
            pods += page.items
            metadata: Any = page.metadata
            following = metadata._continue
            if not following:
                return len(pods), str(metadata.resource_version)

    async def patch(self, name: str, value: int) -> None:
        """Change an annotation."""
        patch = {"metadata": {"annotations": {"bench": str(value)}}}
        await self._core.patch_namespaced_pod(
            name, NAMESPACE, patch, _content_type="application/merge-patch+json"
        )

    async def watch(self, version: str, count: int) -> None:
        """Read so many changes since a version."""
        from kubernetes.aio.watch import Watch

        async with Watch().stream(
            self._core.list_namespaced_pod, namespace=NAMESPACE, resource_version=version
        ) as events:
            async for event in events:
                count -= event["type"] == "MODIFIED"
                if not count:
                    break

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


Connect = Callable[[Path], Awaitable[Calls]]


def make(client: str) -> Connect:
    """Import a client."""
    if client == "generated":
        from kubernetes.aio.config import new_client_from_config

        async def generated(kubeconfig: Path) -> Calls:
            return GeneratedCalls(await new_client_from_config(str(kubeconfig), persist_config=False))

        return generated
    if client == "ours":
        from tdcs.kube.client import connect

        async def ours(kubeconfig: Path) -> Calls:
            return Calls(await connect(kubeconfig=kubeconfig))

        return ours
    # Of the other checkout: it may be gone from this one.
    from importlib import import_module

    import_module("tdcs.kube.api")

    async def before(kubeconfig: Path) -> Calls:
        config = import_module("lightkube.config.kubeconfig").KubeConfig.from_file(str(kubeconfig))
        return Calls(import_module("tdcs.kube.api").LightkubeApi(config=config))

    return before


if __name__ == "__main__":
    main()
