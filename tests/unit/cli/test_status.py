"""`tdcs status` shows what there is, how far it is, and what needs a person."""

import io
from typing import Any

from rich.console import Console

from tdcs.cli.status import World, show


def obj(
    name: str, *, namespace: str = "n", spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec or {}, "status": status}


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


WORLD = World(
    clusters=[
        obj(
            "default",
            namespace="",
            conditions=[condition("Ready", "False", "1 of 2 cache workers are registered; lost: b")],
            replicas=2,
            readyReplicas=1,
            usedBytes=1 << 30,
            capacityBytes=4 << 30,
            workers=[{"node": "a", "state": "Ready"}, {"node": "b", "state": "Lost"}],
        )
    ],
    datasets=[
        obj(
            "pictures",
            state="Loading",
            loaded="42%",
            loadedBytes=42,
            wantedBytes=100,
            rate="47 MB/s",
            totalBytes=3_000_000,
            totalFiles=30,
            copies=[{"id": "0", "nodes": [{"name": "a", "bytes": 42}]}],
            conditions=[
                condition("Placed", "False", "it lies on 1 node"),
                condition("Ready", "False", "42%"),
            ],
        ),
        obj(
            "waits", state="Failed", conditions=[condition("Ready", "False", "Secret n/keys does not exist")]
        ),
    ],
    preloads=[
        obj(
            "warm",
            spec={"dataset": "pictures"},
            state="Complete",
            progress="100%",
            bytesDone=10,
            bytesTotal=10,
            filesDone=3,
            filesTotal=3,
        )
    ],
    jobs=[obj("train", spec={"datasets": [{"name": "pictures"}]}, state="Running", locality=0.5)],
)


def shown(world: World, *, namespace: str | None = "n") -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    show(world, namespace=namespace, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_kind_has_its_row() -> None:
    text = shown(WORLD)
    for part in ("1 of 2", "1 GiB of 4 GiB", "42%", "47 MB/s", "3.0 MB", "Complete", "3 of 3", "50%", "Lost"):
        assert part in text
    assert "n/pictures" not in text.split("!")[0]


def test_what_needs_a_person_is_said_and_what_is_on_its_way_is_not() -> None:
    complaints = [line for line in shown(WORLD).splitlines() if line.startswith("!")]
    assert complaints == [
        "! CacheCluster default: 1 of 2 cache workers are registered; lost: b",
        "! Dataset n/pictures: it lies on 1 node",
        "! Dataset n/waits: Secret n/keys does not exist",
    ]


def test_nothing_is_said_in_a_line() -> None:
    text = shown(World(), namespace=None)
    assert "no Dataset in any namespace" in text
    assert "no CacheCluster" in text


def test_a_narrow_terminal_shows_names_and_states_rather_than_bars() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    show(WORLD, namespace="n", console=console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "━" not in text
    for part in ("pictures", "Loading", "42%", "Complete", "1 GiB of 4 GiB"):
        assert part in text
    assert "━" in shown(WORLD)


def test_all_namespaces_are_told_apart() -> None:
    assert "n/pictures" in shown(WORLD, namespace=None)
