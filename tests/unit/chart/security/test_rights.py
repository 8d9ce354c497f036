"""What the chart's accounts may do."""

import pytest
from tests.support.rights.comparison import ACCOUNTS, Grant, Place, Right, account_of, rights_in
from tests.support.rights.exceptions import UNUSED, WIDE
from tests.support.rights.granted import granted_by_chart
from tests.unit.chart.conftest import NAMESPACE, Helm, RefusedError, Rendered, rules


def test_no_right_is_a_wildcard_or_reaches_into_pods(rendered: Rendered) -> None:
    for role in rendered.all("ClusterRole") + rendered.all("Role"):
        for group, resource, verb in rules(role):
            assert "*" not in (group, resource, verb), role["metadata"]["name"]
            assert resource.partition("/")[2] not in {
                "exec",
                "attach",
                "portforward",
                "proxy",
                "ephemeralcontainers",
            }
            assert verb not in {"escalate", "bind", "impersonate", "deletecollection"}


def test_secrets_are_read_in_single_namespaces_only(helm: Helm) -> None:
    # For its own certificates the operator has a Role in its own namespace: see test_trust.
    rendered = helm.template({"datasetNamespaces": '["team-a", "team-b"]', "trust.enabled": "false"})
    roles = rendered.all("ClusterRole") + rendered.all("Role")
    verbs: dict[str, set[str]] = {}
    for role in roles:
        secret_verbs = {verb for _, resource, verb in rules(role) if resource == "secrets"}
        verbs.setdefault(role["metadata"]["name"], set()).update(secret_verbs)
    assert verbs.pop("tdcs-operator") == {"create"}, "of pods that serve claims; to create one reads none"
    with_secrets = {name: role_verbs for name, role_verbs in verbs.items() if role_verbs}

    assert with_secrets == {"tdcs-dataset-secrets": {"get"}}
    assert not [b for b in rendered.all("ClusterRoleBinding") if b["roleRef"]["name"] in with_secrets]
    bound = [b for b in rendered.all("RoleBinding") if b["roleRef"]["name"] in with_secrets]
    assert {binding["metadata"]["namespace"] for binding in bound} == {"team-a", "team-b"}
    for binding in bound:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "tdcs-operator", "namespace": NAMESPACE}
        ]


def test_services_find_pods_by_labels_that_the_operator_may_give_none(helm: Helm) -> None:
    """The policy about the operator's account compares these two."""
    rendered = helm.template({"keda.enabled": "true", "placeByData": '"Webhook"'})
    services = rendered.all("Service")
    assert {"tdcs-webhook", "tdcs-scaler"} < {service["metadata"]["name"] for service in services}
    labels = {"app.kubernetes.io/name": "tdcs", "app.kubernetes.io/instance": "tdcs"}
    assert [
        service for service in services if not labels.items() <= service["spec"]["selector"].items()
    ] == []


def test_without_being_asked_no_secret_can_be_read(default: Rendered) -> None:
    assert not [b for b in default.all("RoleBinding") if b["roleRef"]["name"] == "tdcs-dataset-secrets"]


@pytest.mark.threat("token-reads")
def test_cluster_wide_rights_go_to_known_accounts_only(default: Rendered) -> None:
    bound = {(b["roleRef"]["name"], b["subjects"][0]["name"]) for b in default.all("ClusterRoleBinding")}

    assert bound == {
        ("tdcs-operator", "tdcs-operator"),
        ("tdcs-extender", "tdcs-scheduler"),
        ("system:kube-scheduler", "tdcs-scheduler"),
        ("system:volume-scheduler", "tdcs-scheduler"),
        ("tdcs-crd-upgrade", "tdcs-crd-upgrade"),
        ("tdcs-uninstall", "tdcs-uninstall"),
    }


@pytest.mark.parametrize("value", ["Webhook", "Policy", "Off"])
@pytest.mark.threat("scheduler-webhook-configuration")
def test_no_account_may_change_what_the_api_server_asks_about_objects(helm: Helm, value: str) -> None:
    # Who can change one webhook configuration can have every object of the cluster sent to them.
    rendered = helm.template({"placeByData": f'"{value}"', "crds.upgrade": "true", "kueue.enabled": "true"})
    roles = rendered.all("ClusterRole") + rendered.all("Role")
    groups = {group for role in roles for group, _, _ in rules(role)}
    assert "tdcs.io" in groups
    assert "admissionregistration.k8s.io" not in groups


NAMESPACED = {"scope": '"Namespaces"', "datasetNamespaces": '["data", "both"]', "jobNamespaces": '["both"]'}


@pytest.mark.threat("token-jobs")
def test_an_operator_of_single_namespaces_has_its_rights_by_roles_there(helm: Helm) -> None:
    rendered = helm.template(NAMESPACED)
    account = [{"kind": "ServiceAccount", "name": "tdcs-operator", "namespace": NAMESPACE}]
    bound = {
        binding["metadata"]["namespace"]
        for binding in rendered.all("RoleBinding")
        if binding["roleRef"] == {**binding["roleRef"], "kind": "Role", "name": "tdcs-operator-work"}
        and binding["subjects"] == account
    }
    roles = {
        role["metadata"]["namespace"]: set(rules(role))
        for role in rendered.all("Role")
        if role["metadata"]["name"] == "tdcs-operator-work"
    }
    assert bound == set(roles) == {"data", "both", NAMESPACE}
    watch_jobs, make_claims = ("batch", "jobs", "watch"), ("", "persistentvolumeclaims", "create")
    assert {name for name, rights in roles.items() if watch_jobs in rights} == {"both", NAMESPACE}
    assert {name for name, rights in roles.items() if make_claims in rights} == {"data", "both", NAMESPACE}
    wide = set(rules(rendered.one("ClusterRole", "tdcs-operator")))
    assert {resource for _, resource, _ in wide} == {
        "namespaces", "nodes", "pods", "persistentvolumes", "priorityclasses", "runtimeclasses", "servicecidrs",
    }  # fmt: skip
    assert {(resource, verb) for _, resource, verb in wide if verb not in {"get", "list", "watch"}} == {
        ("persistentvolumes", verb) for verb in ("create", "patch", "delete")
    }
    # Together no right more or less than of the operator of all namespaces.
    own_rules = set(rules(rendered.one("Role", "tdcs-operator")))
    everywhere = helm.template({})
    of_all = {
        *rules(everywhere.one("ClusterRole", "tdcs-operator")),
        *rules(everywhere.one("Role", "tdcs-operator")),
    }
    assert wide | own_rules | set().union(*roles.values()) == of_all
    options = rendered.containers()["tdcs-operator/operator"]["args"]
    assert [option for option in options if option.startswith(("--scope", "--dataset-n", "--job-n"))] == [
        "--scope=namespaces", "--dataset-namespace=data", "--dataset-namespace=both", "--job-namespace=both",
    ]  # fmt: skip


def test_an_operator_of_no_namespace_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match="name at least one namespace"):
        helm.template({"scope": '"Namespaces"'})


def test_the_accounts_whose_use_of_rights_is_compared_are_all_of_the_chart(helm: Helm) -> None:
    rendered = helm.template({"crds.upgrade": "true", "kueue.enabled": "true"})
    accounts = {account_of(account["metadata"]["name"]) for account in rendered.all("ServiceAccount")}
    assert accounts == set(ACCOUNTS)
    assert len(rendered.all("ServiceAccount")) == len(ACCOUNTS)


def test_what_each_account_is_granted_is_compared_with_any_values_and_kueues_part_for_itself() -> None:
    plain, kueue = map(rights_in, granted_by_chart())
    assert {right.account for right in plain} == set(ACCOUNTS)
    assert Right("scheduler", "", "configmaps", "patch") in plain
    assert Right("operator", "kueue.x-k8s.io", "workloads", "list") in kueue
    assert UNUSED.keys() | WIDE.keys() <= plain


def test_what_is_granted_is_compared_with_its_place_and_names() -> None:
    plain, _ = granted_by_chart()
    own_lease = frozenset({"RELEASE-operator"})
    assert Grant(Right("operator", "coordination.k8s.io", "leases", "patch"), Place.OWN, own_lease) in plain
    claims = frozenset({"tdcs-claims"})
    assert Grant(Right("scheduler", "", "configmaps", "patch"), Place.OWN, claims) in plain
    read_secrets = Right("operator", "", "secrets", "get")
    assert {grant.place for grant in plain if grant.right == read_secrets} == {Place.OWN, Place.OTHER}
    assert Grant(Right("operator", "batch", "jobs", "create")) in plain


def test_nodes_are_asked_for_only_where_that_is_the_way(helm: Helm) -> None:
    for way, expected in (
        ("Off", set[str]()),
        ("Release", set[str]()),
        ("ProvisioningRequest", {"get", "create", "patch", "delete"}),
    ):
        rendered = helm.template({"operator.nodeProvisioning": f'"{way}"'})
        roles = rendered.all("ClusterRole") + rendered.all("Role")
        granted = {rule for role in roles for rule in rules(role)}
        assert {verb for _, kind, verb in granted if kind == "provisioningrequests"} == expected
        assert {verb for _, kind, verb in granted if kind == "podtemplates"} == expected - {"get"}
