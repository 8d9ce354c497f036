"""What the chart grants for Kueue: nothing unless it is asked for."""

from tests.unit.chart.conftest import Helm, Rendered

from tdcs.api import names
from tdcs.model.kube_resources import PRELOADS, WORKLOADS


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


def test_with_kueue_the_operator_writes_statuses_and_the_workloads_of_trainingjobs_only(helm: Helm) -> None:
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
        # Of TrainingJobs that name a queue.
        ("kueue.x-k8s.io", "workloads"),
        ("batch", "jobs/status"),
        (names.GROUP, "preloads"),
    }
    binding = rendered.one("ClusterRoleBinding", "tdcs-operator-kueue")
    assert [subject["name"] for subject in binding["subjects"]] == ["tdcs-operator"]
    assert "--kueue" in rendered.containers()["tdcs-operator/operator"]["args"]


def test_only_with_kueue_the_policies_let_the_operator_create_preloads(helm: Helm, default: Rendered) -> None:
    def validation(rendered: Rendered) -> tuple[str, str]:
        policy = rendered.one("ValidatingAdmissionPolicy", "tdcs-operator-specs")
        (only,) = (rule for rule in policy["spec"]["validations"] if "creates none" in rule["message"])
        return only["expression"], only["message"]

    deleted = "request.operation == 'DELETE'"
    unchanged = "oldObject != null && object.?spec == oldObject.?spec"
    expression, message = validation(default)
    assert expression == f"{deleted} || ({unchanged})"
    assert message.endswith("creates none of them")

    expression, message = validation(helm.template({"kueue.enabled": "true"}))
    first, before, created = expression.split(" || ")
    assert (first, before) == (deleted, f"({unchanged})")
    # As the operator makes them: see KueueChecks, and the same on an API server in tests/controlplane.
    assert created == (
        f"(request.operation == 'CREATE' && request.resource.resource == '{PRELOADS.plural}' && "
        "object.metadata.?ownerReferences.orValue([]).exists(r, "
        f"r.apiVersion.startsWith('{WORKLOADS.group}/') && r.kind == '{WORKLOADS.kind}'))"
    )
    assert message.endswith("but Preloads that Workloads of Kueue own")


def test_only_with_kueue_and_policies_a_running_job_cannot_leave_its_queue(
    helm: Helm, default: Rendered
) -> None:
    def policies(rendered: Rendered) -> set[str]:
        return {obj["metadata"]["name"] for obj in rendered.all("ValidatingAdmissionPolicy")}

    name = "tdcs-queue-labels"
    values = {"kueue.enabled": "true"}
    assert name not in policies(default)
    assert name not in policies(helm.template({**values, "admissionPolicies.enabled": "false"}))
    rendered = helm.template(values)
    assert name in policies(rendered)
    binding = rendered.one("ValidatingAdmissionPolicyBinding", name)
    assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}
