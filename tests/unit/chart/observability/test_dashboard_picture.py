"""The picture of the Grafana dashboard: how it is drawn, and that the documentation has that of the dashboard."""

import json
from html import escape
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.support.generators.dashboard_picture import Line, draw, in_unit, lines_of, ticks_of
from tests.unit.chart.conftest import CHART, ROOT

PICTURE = ROOT / "docs" / "images" / "dashboard.svg"
SVG = "{http://www.w3.org/2000/svg}"


def dashboard() -> Any:
    return json.loads((CHART / "dashboards" / "tdcs.json").read_text())


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314


def test_the_page_shows_all_panels_of_the_dashboard_with_data() -> None:
    titles = texts(PICTURE.read_text())
    assert {panel["title"] for panel in dashboard()["panels"]} <= set(titles), "make dashboard-docs"
    assert "no data" not in titles
    assert "(../images/dashboard.svg)" in (ROOT / "docs" / "how-to" / "monitoring.md").read_text()


def test_a_panel_has_a_line_and_a_legend_for_each_series() -> None:
    panel = {
        "id": 1,
        "type": "timeseries",
        "title": "Granted & held",
        "gridPos": {"x": 0, "y": 0, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": "bytes"}},
        "targets": [
            {"expr": 'held{namespace=~"$namespace"}', "legendFormat": "{{namespace}}/{{dataset}} held"}
        ],
    }
    expressions: list[str] = []

    def ask(expression: str) -> list[dict[str, Any]]:
        expressions.append(expression)
        values = [[0, "1024"], [2, "NaN"], [4, "3072"]]
        return [{"metric": {"namespace": "n", "dataset": name}, "values": values} for name in ("a", "b")]

    lines = lines_of(panel, ask, variables={"$namespace": "n"})
    assert expressions == ['held{namespace=~"n"}']
    assert lines[0] == Line("n/a held", ((0.0, 1024.0), (4.0, 3072.0)))
    picture = draw({"panels": [panel]}, {1: lines})
    assert {"Granted & held", "n/a held", "n/b held", "3 KiB", "4 s"} <= set(texts(picture))
    assert escape("Granted & held") in picture
    assert "no data" in texts(draw({"panels": [panel]}, {}))


@pytest.mark.parametrize(
    ("most", "unit", "expected"),
    [
        (0.0, "short", [0, 1]),
        (3.0, "short", [0, 1, 2, 3]),
        (7.0, "short", [0, 2, 4, 6, 8]),
        (0.9, "percentunit", [0, 0.5, 1]),
        (3.5 * 2**20, "bytes", [0, 2**20, 2 * 2**20, 3 * 2**20, 4 * 2**20]),
    ],
)
def test_an_axis_has_round_values(most: float, unit: str, expected: list[float]) -> None:
    assert ticks_of(most, unit=unit) == pytest.approx(expected)


def test_values_have_the_units_of_the_dashboard() -> None:
    units = {panel.get("fieldConfig", {}).get("defaults", {}).get("unit") for panel in dashboard()["panels"]}
    assert units - {None} == {"bytes", "Bps", "short", "percentunit", "s", "cps"}
    assert [in_unit(0.5, unit) for unit in ("percentunit", "s", "cps", "short")] == [
        "50%",
        "500 ms",
        "0.5/s",
        "0.5",
    ]
    assert in_unit(2048, "Bps") == "2 KiB/s"
