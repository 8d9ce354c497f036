"""The chart, rendered by helm itself."""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.chart import rules_of
from tests.support.documents import documents

from tdcs_local import programs

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "tdcs"
LOCAL_VALUES = ROOT / "deploy" / "local" / "values.yaml"
PLAIN_VALUES = ROOT / "deploy" / "local" / "values-plain.yaml"
"""Without certificates, which are on by default."""
NAMESPACE = "tdcs-system"

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The objects of a release named tdcs, in namespace tdcs-system."""

    objects: Sequence[Object]

    def all(self, kind: str) -> list[Object]:
        return [obj for obj in self.objects if obj["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        (obj,) = (obj for obj in self.all(kind) if obj["metadata"]["name"] == name)
        return obj

    def pod_specs(self) -> dict[str, Object]:
        """The pod specs of all workloads by name."""
        kinds = ("Deployment", "DaemonSet", "Job")
        specs = {
            o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in self.objects if o["kind"] in kinds
        }
        return {**specs, **{pod["metadata"]["name"]: pod["spec"] for pod in self.all("Pod")}}

    def containers(self) -> dict[str, Object]:
        """All containers by WORKLOAD/CONTAINER."""
        return {
            f"{name}/{container['name']}": container
            for name, spec in self.pod_specs().items()
            for container in [*spec.get("initContainers", ()), *spec["containers"]]
        }


def rules(role: Object) -> list[tuple[str, str, str]]:
    """(group, resource, verb) of everything a role allows."""
    return list(rules_of(role))


class RefusedError(Exception):
    """Helm refused; the text is what it said."""


@functools.cache
def printed(*command: str | Path) -> str:
    """What helm prints; it is asked the same once, as it reads nothing that a test changes."""
    # It ends before collecting its garbage pays: that is a third of its time.
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "GOGC": "off"}
    )
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


class Helm:
    """Renders and checks the chart."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def run(self, *arguments: str | Path) -> str:
        return printed(self._program, *arguments)

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        files: Sequence[Path] = (),
        release: str = "tdcs",
        apis: Sequence[str] = (),
    ) -> Rendered:
        value_files = [word for file in files for word in ("--values", str(file))]
        words = [word for name, value in (values or {}).items() for word in ("--set-json", f"{name}={value}")]
        served = [word for api in apis for word in ("--api-versions", api)]
        manifests = self.run(
            "template", release, CHART, "--namespace", NAMESPACE, *value_files, *words, *served
        )
        return Rendered(objects=documents(manifests))

    def notes(self, values: Mapping[str, Any], *, folder: Path) -> str:
        """What helm would say after an installation with these values. It says so to a cluster only, so a copy of the
        chart in `folder` has the notes in an object."""
        chart = folder / "tdcs"
        if not chart.exists():
            shutil.copytree(CHART, chart)
            notes = chart / "templates" / "NOTES.txt"
            inside = '{{ define "notes" }}' + notes.read_text() + '{{ end }}{{ include "notes" . | toJson }}'
            (chart / "templates" / "notes.yaml").write_text(
                f"kind: Notes\nmetadata: {{name: notes}}\ntext: {inside}\n"
            )
            notes.unlink()
        words = [word for name, value in values.items() for word in ("--set-json", f"{name}={value}")]
        manifests = self.run("template", "tdcs", chart, "--namespace", NAMESPACE, *words)
        return str(Rendered(objects=documents(manifests)).one("Notes", "notes")["text"])


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(programs.ensure("helm") / "helm")


@pytest.fixture(scope="session")
def default(helm: Helm) -> Rendered:
    """The chart as it is."""
    return helm.template()


@pytest.fixture(scope="session")
def local(helm: Helm) -> Rendered:
    """The chart with the values of the local cluster."""
    return helm.template(files=[LOCAL_VALUES])


@pytest.fixture(scope="session")
def plain(helm: Helm) -> Rendered:
    """The chart without the remote-read client and certificates."""
    return helm.template(files=[PLAIN_VALUES])


@pytest.fixture(scope="session", params=["default", "local", "plain"])
def rendered(request: pytest.FixtureRequest) -> Rendered:
    """The chart, each way in turn."""
    rendered: Rendered = request.getfixturevalue(request.param)
    return rendered


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A first run builds helm in a fixture: count only a test's own time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(func_only=True))
