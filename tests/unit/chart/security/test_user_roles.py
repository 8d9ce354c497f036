"""The ClusterRoles that the chart has for people."""

import itertools

import pytest
from tests.support.documents import document
from tests.support.rights.granted import grants_of
from tests.unit.chart.conftest import ROOT, Helm, Object, RefusedError, Rendered, rules

AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"
READ, WRITE = ("get", "list", "watch"), ("create", "update", "patch", "delete")
TEAMS = ("datasets", "preloads", "trainingjobs")
VIEW = set(itertools.product(["tdcs.io"], TEAMS, READ)) | {
    ("tdcs.io", resource, "get")
    for resource in (
        *(f"{plural}/status" for plural in TEAMS),
        "datasets/scale",
        "trainingjobs/scale",
    )
}
ADVICE = {
    *itertools.product([""], ("pods", "events", "persistentvolumeclaims"), READ),
    ("", "pods/log", "get"),
}
"""What messages ask people to look at: `kubectl logs`, `describe` and `get` of what is in their namespace."""
VIEW |= ADVICE
EDIT = (
    VIEW
    | set(itertools.product(["tdcs.io"], TEAMS, WRITE))
    | set(itertools.product(["tdcs.io"], ("datasets/scale", "trainingjobs/scale"), ("update", "patch")))
)
CLUSTER_VIEW = {
    *itertools.product(["tdcs.io"], ("cacheclusters", "datachecks"), READ),
    *itertools.product([""], ("nodes",), READ),
}


def aggregated(role: Object) -> set[str]:
    labels = role["metadata"]["labels"]
    return {key.removeprefix(AGGREGATED) for key in labels if key.startswith(AGGREGATED)}


def test_view_and_edit_of_a_namespace_cover_the_kinds_of_teams(default: Rendered) -> None:
    assert set(rules(default.one("ClusterRole", "tdcs-view"))) == VIEW
    assert set(rules(default.one("ClusterRole", "tdcs-edit"))) == EDIT


def test_caches_and_nodes_are_seen_by_whom_the_administrator_lets(default: Rendered) -> None:
    role = default.one("ClusterRole", "tdcs-cluster-view")

    assert set(rules(role)) == CLUSTER_VIEW
    assert aggregated(role) == set()


def test_every_kind_and_every_scale_of_a_definition_has_its_role() -> None:
    kinds, scales = set(), set()
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        spec = document(file.read_text(encoding="utf-8"))["spec"]
        plural = spec["names"]["plural"]
        kinds.add((spec["group"], plural, "list"))
        if plural in TEAMS and any(
            "scale" in (version.get("subresources") or {}) for version in spec["versions"]
        ):
            scales.add((spec["group"], f"{plural}/scale", "patch"))
    assert kinds <= VIEW | CLUSTER_VIEW
    assert scales == {right for right in EDIT if right[1].endswith("/scale") and right[2] == "patch"}


def test_they_are_part_of_kubernetes_own_roles_where_that_is_asked_for(helm: Helm, default: Rendered) -> None:
    rendered = helm.template({"users.aggregateRoles": "true"})
    parts = {"view": {"view", "edit", "admin"}, "edit": {"edit", "admin"}, "cluster-view": set()}
    for name, part in parts.items():
        assert aggregated(rendered.one("ClusterRole", f"tdcs-{name}")) == part
        assert aggregated(default.one("ClusterRole", f"tdcs-{name}")) == set()


def test_roles_of_people_are_bound_to_nobody_and_count_as_no_right_of_tdcs(default: Rendered) -> None:
    names = {"tdcs-view", "tdcs-edit", "tdcs-cluster-view"}
    bindings = default.all("ClusterRoleBinding") + default.all("RoleBinding")
    assert not names & {binding["roleRef"]["name"] for binding in bindings}
    without = [obj for obj in default.objects if obj["metadata"]["name"] not in names]
    assert grants_of(default.objects) == grants_of(without)


def test_a_misspelt_value_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match="agregateRoles"):
        helm.template({"users.agregateRoles": "false"})
