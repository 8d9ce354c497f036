"""What the chart grants for Kueue: nothing unless it is asked for."""

from tests.unit.chart.conftest import Helm

from tdcs.api import names


def test_without_being_asked_the_operator_has_no_right_on_kueues_kinds(helm: Helm) -> None:
    rendered = helm.template()
    groups = {
        group
        for kind in ("ClusterRole", "Role")
        for role in rendered.all(kind)
        for rule in role["rules"]
        for group in rule["apiGroups"]
    }
    assert "kueue.x-k8s.io" not in groups
    assert "--kueue" not in rendered.containers()["tdcs-operator/operator"]["args"]


def test_with_kueue_the_operator_answers_checks_and_may_write_statuses_only(helm: Helm) -> None:
    rendered = helm.template({"kueue.enabled": "true"})
    role = rendered.one("ClusterRole", "tdcs-operator-kueue")
    writes = {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert writes == {
        ("kueue.x-k8s.io", "admissionchecks/status"),
        ("kueue.x-k8s.io", "workloads/status"),
        (names.GROUP, "preloads"),
    }
    binding = rendered.one("ClusterRoleBinding", "tdcs-operator-kueue")
    assert [subject["name"] for subject in binding["subjects"]] == ["tdcs-operator"]
    assert "--kueue" in rendered.containers()["tdcs-operator/operator"]["args"]
