"""The alerts of the chart: every expression is of metrics, labels and states that there are."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from tests.support.documents import document
from tests.unit.chart.conftest import CHART, ROOT, Helm, Object

from tdcs.api.dataset import DatasetState
from tdcs.api.trainingjob_status import JobState

FILE = CHART / "alerts" / "tdcs.yaml"
STATES = {"dataset": get_args(DatasetState), "trainingjob": get_args(JobState)}
HELD_BY_PROMETHEUS = {"le"}
METRIC = re.compile(r"\btdcs_[a-z_]+")


def reference() -> dict[str, set[str]]:
    """Labels by the names of the series that there are."""
    labels_by_name: dict[str, set[str]] = {}
    row = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
    for name, kind, labels in row.findall((ROOT / "docs" / "reference" / "metrics.md").read_text()):
        series = [f"{name}{end}" for end in ("_bucket", "_sum", "_count")] if kind == "histogram" else [name]
        for series_name in series:
            labels_by_name[series_name] = set(re.findall(r"`(\w+)`", labels))
    return labels_by_name


def rules(path: Path = FILE) -> list[Object]:
    (group,) = document(path.read_text())["groups"]
    return list(group["rules"])


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_about_metrics_and_labels_that_there_are(rule: Object) -> None:
    labels_by_name, expression = reference(), rule["expr"]
    metrics = set(METRIC.findall(expression))
    assert metrics
    assert metrics <= labels_by_name.keys()
    labels = set().union(*(labels_by_name[metric] for metric in metrics)) | HELD_BY_PROMETHEUS
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    assert {label.strip() for group in grouped for label in group.split(",")} <= labels
    for metric, label, value in re.findall(r"(tdcs_\w+)\{(\w+)=\"(\w+)\"\}", expression):
        assert label in labels_by_name[metric]
        if label == "state":
            assert value in STATES[metric.split("_")[1]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_it_means_by_labels_that_its_series_has(rule: Object) -> None:
    labels_by_name, expression = reference(), rule["expr"]
    by = re.search(r"\bsum by \(([^)]*)\)", expression)
    kept_labels = (
        {label.strip() for label in by.group(1).split(",")}
        if by
        else set()
        if re.match(r"(max|absent|sum)\(", expression)
        else labels_by_name[METRIC.findall(expression)[0]]
    )
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= kept_labels
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])


@pytest.mark.parametrize("kind", ["PrometheusRule", "ConfigMap"])
def test_the_chart_hands_the_alerts_over_as_they_are(helm: Helm, kind: str) -> None:
    values = {
        "alerts.enabled": "true",
        "alerts.kind": f'"{kind}"',
        "alerts.labels": '{"release": "prometheus"}',
    }
    alerts = helm.template(values).one(kind, "tdcs-alerts")
    assert alerts["metadata"]["labels"]["release"] == "prometheus"
    groups = alerts["spec"] if kind == "PrometheusRule" else document(alerts["data"]["tdcs.yaml"])
    assert groups == document(FILE.read_text())


def test_no_alerts_are_made_unless_they_are_asked_for(helm: Helm) -> None:
    rendered = helm.template()
    assert not [obj for obj in rendered.objects if "alerts" in obj["metadata"]["name"]]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool, of Debian's package prometheus, is not here"
)
def test_prometheus_itself_fires_every_alert_when_it_should_and_none_otherwise(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("alerts_test.yaml").read_text()
    cases_file = tmp_path / "cases.yaml"
    cases_file.write_text(cases.replace("RULES", str(FILE)).replace("value: ALL", f"value: {len(rules())}"))

    done = subprocess.run(
        ["promtool", "test", "rules", cases_file], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
