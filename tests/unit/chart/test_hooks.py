"""What Helm runs before an upgrade and an uninstall, and as a test."""

import pytest
from tests.unit.chart.conftest import Helm, Rendered


def test_no_hook_leaves_anything_behind_that_an_uninstall_would_miss(default: Rendered) -> None:
    hooked = [o for o in default.objects if "helm.sh/hook" in o["metadata"].get("annotations", {})]
    assert len(hooked) > 10
    for obj in hooked:
        policy = obj["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
        assert "hook-succeeded" in policy, obj["metadata"]["name"]
    test = default.one("Pod", "tdcs-smoke-test")["metadata"]["annotations"]
    assert test["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed"


@pytest.mark.parametrize(
    ("name", "when"),
    [("tdcs-crd-upgrade", "pre-upgrade"), ("tdcs-uninstall", "pre-delete"), ("tdcs-smoke-test", "test")],
)
def test_hooks_run_when_they_should(default: Rendered, name: str, when: str) -> None:
    hooked = [
        o for o in default.objects if o["metadata"].get("annotations", {}).get("helm.sh/hook", "") == when
    ]

    network_test = {"tdcs-network-test"} if when == "test" else set()  # it has no account
    assert {o["metadata"]["name"] for o in hooked} == {name} | network_test
    # The account and its rights before the job that needs them.
    weights = {o["kind"]: int(o["metadata"]["annotations"]["helm.sh/hook-weight"]) for o in hooked}
    assert weights.pop("Job" if "Job" in weights else "Pod") > max(weights.values())


def test_an_uninstall_asks_what_is_left_even_where_the_chart_makes_no_cache(
    helm: Helm, default: Rendered
) -> None:
    without = helm.template({"cacheCluster.create": "false"})
    base = ["delete-caches", "--namespace", "tdcs-system"]
    for chart, expected in ((default, [*base, "default"]), (without, base)):
        assert chart.containers()["tdcs-uninstall/delete-caches"]["args"] == expected
        verbs = {
            (resource, tuple(rule.get("resourceNames", ()))): set(rule["verbs"])
            for kind in ("ClusterRole", "Role")
            for rule in chart.one(kind, "tdcs-uninstall")["rules"]
            for resource in rule["resources"]
        }
        assert verbs[("datasets", ())] == verbs[("cacheclusters", ())] == {"list"}
        assert verbs.get(("cacheclusters", ("default",)), set()) == (
            {"get", "delete"} if chart is default else set()
        )
    # Helm prints what it says.
    annotations = default.one("Job", "tdcs-uninstall")["metadata"]["annotations"]
    assert annotations["helm.sh/hook-output-log-policy"] == "hook-failed"
