"""The Grafana dashboard asks for nothing but metrics and labels that TDCS has."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.chart.conftest import CHART, NAMESPACE, ROOT, Helm, Object, RefusedError, Rendered

ROW = re.compile(r"^\| `(?P<name>tdcs_\w+)` \| (?P<type>\w+) \| (?P<labels>[^|]*) \|", re.MULTILINE)
METRIC = re.compile(r"\btdcs_\w+")
SERIES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
OUTER = {"le", "job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds, or that the series of histograms have."""


def series() -> dict[str, tuple[str, set[str]]]:
    """Type and labels by the name of each series, as the reference lists the metrics."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    return {
        f"{row['name']}{ending}": (row["type"], set(re.findall(r"`(\w+)`", row["labels"])))
        for row in ROW.finditer(text)
        for ending in SERIES[row["type"]]
    }


def dashboard() -> Any:
    return json.loads((CHART / "dashboards" / "tdcs.json").read_text())


def panels() -> list[Any]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]


def legends() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_uses_metrics_and_labels_that_there_are(expression: str) -> None:
    known_series = series()
    used = METRIC.findall(expression)
    assert used
    assert set(used) <= known_series.keys()
    labels = OUTER.union(*(known_series[name][1] for name in used))
    grouped = {
        label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")
    }
    matched = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    assert grouped | matched <= labels
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_counters_and_buckets_are_asked_for_their_rate_and_gauges_are_not(expression: str) -> None:
    known_series = series()
    for name in METRIC.findall(expression):
        is_rate = re.search(rf"rate\({name}(\{{[^}}]*\}})?\[", expression) is not None
        assert is_rate == (known_series[name][0] != "gauge"), name


@pytest.mark.parametrize(("expression", "legend"), sorted(set(legends())))
def test_a_legend_names_labels_that_the_expression_leaves(expression: str, legend: str) -> None:
    named = set(re.findall(r"\{\{(\w+)\}\}", legend))
    grouped = [
        {label.strip() for label in group.split(",")} for group in re.findall(r"\bby \(([^)]*)\)", expression)
    ]
    if grouped:
        assert named <= grouped[0]
    elif re.match(r"(sum|max|count)\(", expression):
        assert not named
    else:
        assert named <= set().union(*(series()[name][1] for name in METRIC.findall(expression)))


def test_panels_have_titles_and_places_of_their_own() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every}) == len(every)
    cells = [
        (x, y)
        for panel in every
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)


def test_the_chart_has_it_in_a_config_map_that_grafana_finds(helm: Helm, default: Rendered) -> None:
    def maps(rendered: Rendered) -> list[Object]:
        return [obj for obj in rendered.all("ConfigMap") if obj["metadata"]["name"] == "tdcs-dashboard"]

    assert not maps(default)
    (config_map,) = maps(helm.template({"dashboard.enabled": "true"}))
    assert config_map["metadata"]["namespace"] == NAMESPACE
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config_map["data"]["tdcs.json"]) == dashboard()
    (annotated,) = maps(
        helm.template(
            {"dashboard.enabled": "true", "dashboard.annotations": '{"grafana_folder": "Training"}'}
        )
    )
    assert annotated["metadata"]["annotations"] == {"grafana_folder": "Training"}
    with pytest.raises(RefusedError, match="dashboard"):
        helm.template({"dashboard.enabled": '"yes"'})
