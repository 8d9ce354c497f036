"""A real Prometheus next to a test, and the API by which Kubernetes asks prometheus-adapter."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml
from tests.support.controlplane import ControlPlane
from tests.support.kube import Object
from tests.support.programs.ports import free_ports

from tdcs_local import host
from tdcs_local.progress import Reporter

EXTERNAL_METRICS = "external.metrics.k8s.io"
PROMETHEUS = "prometheus"
ADAPTER = "prometheus-adapter"
"""The program that is built of the Go module of this name below `deploy/local`."""


def external_metrics_api(*, service: str, namespace: str, port: int) -> Object:
    """The API of external metrics, which a HorizontalPodAutoscaler asks; the adapter behind this Service serves it."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{EXTERNAL_METRICS}"},
        "spec": {
            "group": EXTERNAL_METRICS,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": service, "namespace": namespace, "port": port},
        },
    }


def prometheus_program() -> str:
    """The path of Debian's Prometheus, which is installed where it is missing."""
    host.require_programs(PROMETHEUS, reporter=Reporter())
    path = shutil.which(PROMETHEUS)
    assert path is not None
    return path


class Prometheus:
    """Debian's Prometheus, which scrapes ports of this machine every two seconds.

    As with the chart's PodMonitors, what is scraped gets the label `namespace`, unless it has one of its own.

    Args:
        plane: runs the program, and ends it.
        scraped: the ports, by the name of what serves there.
        namespace: the label.
        rules: files with alerts.
        folder: for its own files.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        scraped: Mapping[str, int],
        namespace: str,
        folder: Path,
        rules: Sequence[Path] = (),
    ) -> None:
        self._plane = plane
        self._folder = folder
        self._count = len(scraped)
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        jobs = [
            {
                "job_name": name,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": namespace}}],
            }
            for name, port in scraped.items()
        ]
        configuration = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
            "scrape_configs": jobs,
            "rule_files": [str(file) for file in rules],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))

    def start(self) -> None:
        """Install the program where it is missing, and run it."""
        self._plane.run(
            name=PROMETHEUS,
            argv=[
                prometheus_program(),
                f"--config.file={self._folder}/prometheus.yml",
                f"--storage.tsdb.path={self._folder}/data",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            ready=self._is_ready,
        )

    def stop(self) -> None:
        """End it."""
        self._plane.remove(PROMETHEUS)

    def ask(self, expression: str) -> list[float]:
        """The values of an expression's series that are numbers; one that it does not understand fails the test."""
        answer = self._get("/api/v1/query", query=expression)
        values = [float(series["value"][1]) for series in answer["result"]]
        return [value for value in values if not math.isnan(value)]

    def ask_range(self, expression: str, *, seconds: float) -> list[Object]:
        """The series of an expression in the last so many seconds, a point for every two."""
        now = time.time()
        answer = self._get(
            "/api/v1/query_range", query=expression, start=f"{now - seconds}", end=f"{now}", step="2"
        )
        return list(answer["result"])

    def has_scraped(self) -> bool:
        """Whether all that it scrapes has answered once; raises AssertionError with what is wrong."""
        targets = self._get("/api/v1/targets")["activeTargets"]
        wrong = {
            target["labels"]["job"]: target["lastError"] for target in targets if target["health"] != "up"
        }
        assert self.ask("count(max_over_time(up[10m]) == 1)") == [self._count], wrong
        return True

    def values_of(self, label: str, *, metric: str) -> set[str]:
        """The values of a label in a metric's series, as a dashboard asks for them to fill its choice."""
        return set(self._get(f"/api/v1/label/{label}/values", **{"match[]": metric}))

    def alerts(self) -> dict[str, Object]:
        """The alerts by name, with their `health` and `state`, as they were last evaluated."""
        groups = self._get("/api/v1/rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def _get(self, path: str, **fields: str) -> Any:
        answer = urllib3.request("GET", f"{self.url}{path}", fields=fields, timeout=10, retries=False)
        document = json.loads(answer.data)
        assert document["status"] == "success", (fields, document)
        return document["data"]

    def _is_ready(self) -> bool:
        try:
            return urllib3.request("GET", f"{self.url}/-/ready", timeout=2, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False
