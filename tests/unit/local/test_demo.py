"""What the demo prints of its runs."""

import pytest

from tdcs_local import demo
from tdcs_local.kind import cluster

NODES = ("worker", "worker2", "worker3")


def shown(capsys: pytest.CaptureFixture[str], *, name: str, width: int = 80) -> str:
    """The demo's table of a cluster of this name, printed where no terminal says how wide it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TDCS_CLUSTER", name)
        patch.setenv("COLUMNS", str(width))
        nodes = [f"{cluster.name()}-{node}" for node in NODES]
        held = dict.fromkeys(nodes[:2], 1_674_175)
        pods = [{"node": node, "cachedBytes": 1_674_175} for node in nodes]
        runs = [
            demo.Run(
                name=each.name,
                held=held,
                pods=pods,
                locality=1.0,
                local_share=1.0,
                images_per_second=[12_345.6, 12_345.6],
                source_bytes=12_345_678,
                seconds=83.2,
            )
            for each in (demo.FIRST, demo.SECOND, demo.PARAMETER_SERVER)
        ]
        demo.show(runs)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["tdcs", "tdcs-ci-2206423517", "a" * 40])
def test_the_table_is_whole_whatever_the_cluster_is_called(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    table = shown(capsys, name=name)
    assert "…" not in table
    names = (each.name for each in (demo.FIRST, demo.SECOND, demo.PARAMETER_SERVER))
    assert all(words in table for words in (*names, *NODES, "1.7 MB", "12,346", "12.3 MB", "1 min 23 s"))
    assert f"(nodes without {name}-)" in table


def test_the_table_fits_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, name="tdcs-ci-2206423517")
    assert max(map(len, table.splitlines())) <= 100
