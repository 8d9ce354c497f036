"""What the demo prints of its runs."""

from collections.abc import Sequence
from typing import Any

import pytest

from tdcs_local import demo
from tdcs_local.kind import cluster

NODES = ("worker", "worker2", "worker3")


def run(example: demo.Example, **fields: Any) -> demo.Run:
    """A run of an example with two epochs."""
    given: dict[str, Any] = {
        "held": {},
        "pods": [],
        "locality": 1.0,
        "local_share": 1.0,
        "images_per_second": [12_345.6, 12_345.6],
        "source_bytes": 12_345_678,
        "seconds": 83.2,
    }
    return demo.Run(name=example.name, **{**given, **fields})


def pods_of(example: demo.Example, *, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """One pod on each node, as a job's status names them."""
    roles = ("chief", "ps", "worker") if example is demo.PARAMETER_SERVER else ("worker",) * 3
    return [
        {"pod": f"{example.name}-{role}-0-x7k2p", "node": node, "cachedBytes": 1_674_175}
        for role, node in zip(roles, nodes, strict=True)
    ]


def shown(capsys: pytest.CaptureFixture[str], *, name: str, width: int = 80) -> str:
    """The demo's table of a cluster of this name, printed where no terminal says how wide it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TDCS_CLUSTER", name)
        patch.setenv("COLUMNS", str(width))
        nodes = [f"{cluster.name()}-{node}" for node in NODES]
        held = dict.fromkeys(nodes[:2], 1_674_175)
        demo.show(
            [
                run(each, held=held, pods=pods_of(each, nodes=nodes))
                for each in (demo.FIRST, demo.SECOND, demo.PARAMETER_SERVER)
            ]
        )
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["tdcs", "tdcs-ci-2206423517", "a" * 40])
def test_the_table_is_whole_whatever_the_cluster_is_called(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    table = shown(capsys, name=name)
    assert "…" not in table
    names = (each.name for each in (demo.FIRST, demo.SECOND, demo.PARAMETER_SERVER))
    assert all(words in table for words in (*names, *NODES, "1.7 MB", "12,346", "12.3 MB", "1 min 23 s"))
    title, *rows = table.splitlines()
    assert title == f"Three jobs on one dataset (the names of nodes begin with {name}-, which is left out)"
    assert not any(line.endswith(" ") for line in rows)


def test_the_table_fits_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, name="tdcs-ci-2206423517")
    assert max(map(len, table.splitlines())) <= 100


def test_speeds_next_to_rows_of_pods_are_said_to_be_of_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, name="tdcs")
    assert all(words in table for words in ("epoch:", "all pods", "1: 12,346", "2: 12,346"))


def test_the_pods_of_a_run_stand_below_their_role(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split("│") for line in shown(capsys, name="tdcs").splitlines() if "│" in line]
    pods = [row[3].strip() for row in rows]
    assert pods[-6:] == ["chief:", "worker  1.7 MB", "ps:", "worker2  1.7 MB", "worker:", "worker3  1.7 MB"]


@pytest.mark.parametrize(("sent", "more"), [(1_674_175, ""), (1_600_000, ""), (2_674_175, "1.0 MB")])
def test_the_store_is_said_to_have_sent_something_once_more_when_it_has(sent: int, more: str) -> None:
    text = demo.explanation(run(demo.FIRST, source_bytes=sent), size=1_674_175)
    assert ("once more" in text) == bool(more)
    assert more in text


def test_the_time_of_the_demo_counts_its_cluster() -> None:
    assert demo.finished(seconds=1323, cluster_seconds=790) == (
        "demo finished in 22 min 03 s: 13 min 10 s for the cluster, 8 min 53 s for the rest"
    )
