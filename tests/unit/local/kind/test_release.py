"""Before the chart goes, its objects go, in the order in which the operator can tidy up behind them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tdcs_local import programs
from tdcs_local.errors import LocalError
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT, LOCAL
from tdcs_local.progress import Reporter

READY: dict[str, Any] = {
    "metadata": {"generation": 1},
    "status": {
        "readyReplicas": 1,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}],
    },
}


class Cluster(Kubectl):
    """kubectl of a cluster that deletes what it is told to, but for what is held."""

    def __init__(self, *, held: str = "", kinds: tuple[str, ...] | None = None) -> None:
        self.things: dict[str, list[dict[str, Any]]] = {
            "trainingjobs.tdcs.io": [thing("train", "demo")],
            "preloads.tdcs.io": [],
            "datasets.tdcs.io": [thing("pictures", "demo"), thing("words", "other")],
            "cacheclusters.tdcs.io": [thing("default", "tdcs-system")],
        }
        self.kinds = tuple(self.things) if kinds is None else kinds
        self.held = held
        self.kubeconfig = Path("kubeconfig")
        self.deleted: list[str] = []

    def __call__(self, *words: str, stdin: str | None = None, what: str = "", timeout: float = 120) -> str:
        if words[0] == "delete":
            self.deleted.append(words[2])
            left = [one for one in self.things[words[1]] if one["metadata"]["name"] != words[2]]
            self.things[words[1]] = self.things[words[1]] if words[2] == self.held else left
        return ""

    def get(self, resource: str, name: str, *, namespace: str | None = None) -> dict[str, Any] | None:
        return {} if name in self.kinds else None

    def list(
        self, resource: str, *, namespace: str | None = None, selector: str = ""
    ) -> list[dict[str, Any]]:
        return self.things[resource]


def thing(name: str, namespace: str) -> dict[str, Any]:
    condition = {"type": "Ready", "message": "pods still use the claim"}
    return {"metadata": {"name": name, "namespace": namespace}, "status": {"conditions": [condition]}}


def test_jobs_go_before_their_data_and_data_before_its_cache() -> None:
    cluster = Cluster()
    release.clear(reporter=Reporter(quiet=True), kubectl=cluster)
    assert cluster.deleted == ["train", "pictures", "words", "default"]


def test_what_holds_a_deletion_up_is_told_and_nothing_after_it_is_deleted() -> None:
    cluster = Cluster(held="pictures")
    with pytest.raises(LocalError, match="Datasets are still being deleted") as held:
        release.clear(reporter=Reporter(quiet=True), kubectl=cluster, seconds=0)
    assert "demo/pictures: pods still use the claim" in str(held.value)
    assert cluster.deleted == ["train", "pictures", "words"]


def test_where_nothing_was_installed_nothing_is_deleted() -> None:
    cluster = Cluster(kinds=())
    release.clear(reporter=Reporter(quiet=True), kubectl=cluster)
    assert cluster.deleted == []


def test_files_of_values_come_from_the_environment_in_its_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first.yaml", "second.yaml")]
    for file in files:
        file.touch()
    named = f"{files[0]}::{files[1]}"
    assert release.values_files(env={release.VALUES_VARIABLE: named}) == files
    assert release.values_files(env={}) == []


def test_a_file_of_values_that_is_not_there_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"missing\.yaml") as refused:
        release.values_files(env={release.VALUES_VARIABLE: str(tmp_path / "missing.yaml")})
    assert release.VALUES_VARIABLE in str(refused.value)


def test_files_and_single_values_reach_helm_after_those_of_the_local_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, given = tmp_path / "named.yaml", tmp_path / "given.yaml"
    named.touch()
    monkeypatch.setenv(release.VALUES_VARIABLE, str(named))
    monkeypatch.setattr(programs, "ensure", lambda *_, **__: tmp_path)
    commands: list[list[str]] = []
    monkeypatch.setattr(release, "run", lambda command, **_: commands.append([str(word) for word in command]))
    cluster = Cluster()
    monkeypatch.setattr(cluster, "get", lambda *_, **__: READY)
    tags = {"tdcs": "a", "alluxio": "b"}
    release.install(
        reporter=Reporter(quiet=True), kubectl=cluster, tags=tags, settings={"k": "v"}, values=[given]
    )
    (command,) = commands
    pairs = list(pairwise(command))
    assert [file for option, file in pairs if option == "--values"] == [
        str(LOCAL / "values.yaml"),
        str(named),
        str(given),
    ]
    assert [word for option, word in pairs if option == "--set"][-1] == "k=v"


def test_a_tag_of_digits_alone_stays_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag is the start of a digest, and Helm takes digits for a number, which the chart's schema refuses."""
    commands: list[list[str]] = []
    monkeypatch.setattr(programs, "ensure", lambda name, **_: Path(name))
    monkeypatch.setattr(release, "run", lambda command, **_: commands.append([str(word) for word in command]))
    monkeypatch.setattr(Cluster, "get", lambda *_, **__: READY)
    release.install(
        reporter=Reporter(),
        kubectl=Cluster(),
        tags={"tdcs": "524223664374", "alluxio": "61b11fed3fac"},
        settings={"extender.enabled": "false"},
    )
    (command,) = commands
    options = {value: word for word, value in pairwise(command)}
    assert options["image.tag=524223664374"] == options["alluxio.image.tag=61b11fed3fac"] == "--set-string"
    assert options["extender.enabled=false"] == "--set"


def test_a_release_is_cleared_of_every_kind_that_the_chart_defines() -> None:
    """Otherwise an uninstall is called complete while definitions stay."""
    defined = {file.stem.removeprefix("tdcs.io_") for file in (CHECKOUT / "crds").glob("*.yaml")}
    assert {f"{name}.tdcs.io" for name in defined} == {resource for resource, _ in release.CUSTOM_RESOURCES}
