"""How the chart brings pods with a Dataset's claim to the scheduler."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.unit.chart.conftest import NAMESPACE, Helm, Object, RefusedError, Rendered

from tdcs.api import names
from tdcs_scheduler.main import command as extender_command

POLICY = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"
NAME = "tdcs-place-by-data"
SCHEDULER_HOOK = "pods.place-by-data.tdcs.io"
AFFINITY_HOOK = "affinity.place-by-data.tdcs.io"


def how(rendered: Rendered) -> str:
    """Policy, Webhook or Off."""
    hooks = [hook["name"] for obj in rendered.all("MutatingWebhookConfiguration") for hook in obj["webhooks"]]
    by_hook, by_policy = SCHEDULER_HOOK in hooks, bool(rendered.all("MutatingAdmissionPolicy"))
    assert not (by_hook and by_policy)
    assert (AFFINITY_HOOK in hooks) is (by_hook or by_policy)
    return "Webhook" if by_hook else "Policy" if by_policy else "Off"


def options(rendered: Rendered) -> dict[str, str]:
    """The options of the extender's command, each of which there is."""
    arguments = rendered.containers()["tdcs-scheduler/extender"]["args"][1:]
    value_by_option = dict((argument.removeprefix("--") + "=").split("=")[:2] for argument in arguments)
    known_options = {
        word.removeprefix("--")
        for option in extender_command.params
        for word in (*option.opts, *option.secondary_opts)
    }
    assert value_by_option.keys() <= known_options
    return value_by_option


@pytest.mark.parametrize(
    ("value", "versions", "expected"),
    [
        ("Auto", [], "Webhook"),
        ("Auto", ["v1beta1"], "Policy"),
        ("Auto", ["v1beta1", "v1"], "Policy"),
        ("Policy", [], "Policy"),
        ("Webhook", ["v1"], "Webhook"),
        ("Off", ["v1"], "Off"),
    ],
)
def test_a_policy_does_it_where_the_api_server_has_them(
    helm: Helm, value: str, versions: list[str], expected: str
) -> None:
    served = [POLICY.format(version) for version in versions]
    rendered = helm.template({"placeByData": f'"{value}"'}, apis=served)
    assert how(rendered) == expected
    if expected == "Policy":
        newest = versions[-1] if versions else "v1"
        for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"):
            assert rendered.one(kind, NAME)["apiVersion"] == f"admissionregistration.k8s.io/{newest}"


@pytest.mark.parametrize("switch", ["scheduler.enabled", "extender.enabled"])
def test_without_scheduler_or_extender_pods_are_left_alone(helm: Helm, switch: str) -> None:
    rendered = helm.template({switch: "false"})
    assert how(rendered) == "Off"
    assert not [obj for obj in rendered.all("Service") if "webhook" in obj["metadata"]["name"]]


def test_a_value_that_does_not_exist_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match="placeByData"):
        helm.template({"placeByData": '"Always"'})


def test_the_policy_reads_the_list_that_the_extender_keeps(helm: Helm) -> None:
    rendered = helm.template({"placeByData": '"Policy"', "scheduler.name": '"other"'})
    reference = rendered.one("MutatingAdmissionPolicyBinding", NAME)["spec"]["paramRef"]
    assert reference == {
        "name": names.CLAIM_LIST,
        "namespace": NAMESPACE,
        "parameterNotFoundAction": "Allow",
    }
    assert options(rendered)["claim-list-namespace"] == NAMESPACE
    assert "data" not in rendered.one("ConfigMap", names.CLAIM_LIST), "an upgrade would empty it"
    (rule,) = rendered.one("Role", "tdcs-extender")["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == ([names.CLAIM_LIST], ["get", "patch"])
    policy = rendered.one("MutatingAdmissionPolicy", NAME)["spec"]
    assert policy["failurePolicy"] == "Ignore"
    assert 'schedulerName: "other"' in policy["mutations"][0]["applyConfiguration"]["expression"]
    assert "webhook-port" in options(rendered), "for the affinity of pods of other schedulers"
    without = helm.template({"placeByData": '"Policy"', "placeByAffinity": "false"})
    assert "webhook-port" not in options(without)
    assert not without.all("MutatingWebhookConfiguration")


def test_the_affinity_of_pods_of_other_schedulers_is_renewed_while_they_are_gated(helm: Helm) -> None:
    rendered = helm.template({"placeByData": '"Policy"', "scheduler.name": '"other"'})
    (hook,) = rendered.one("MutatingWebhookConfiguration", NAME)["webhooks"]
    assert (hook["name"], hook["failurePolicy"]) == (AFFINITY_HOOK, "Ignore")
    assert hook["rules"][0]["operations"] == ["CREATE", "UPDATE"]
    conditions = {condition["name"]: condition["expression"] for condition in hook["matchConditions"]}
    assert '"other"' in conditions["names-another-scheduler-or-asks"]
    assert names.ANNOTATION_DATA_AFFINITY in conditions["names-another-scheduler-or-asks"]
    assert "oldObject.spec.?schedulingGates" in conditions["is-new-or-was-gated"]


@pytest.mark.threat("token-webhook", "scheduler-webhook-configuration")
def test_the_webhook_leads_to_the_extender(helm: Helm) -> None:
    rendered = helm.template({"placeByData": '"Webhook"'})
    hook, _ = rendered.one("MutatingWebhookConfiguration", NAME)["webhooks"]
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")
    called = hook["clientConfig"]["service"]
    service = rendered.one("Service", called["name"])["spec"]
    pod = rendered.one("Deployment", "tdcs-scheduler")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= pod.items()
    (port,) = (port_spec for port_spec in service["ports"] if port_spec["port"] == called["port"])
    ports = {
        port_spec["name"]: port_spec
        for port_spec in rendered.containers()["tdcs-scheduler/extender"]["ports"]
    }
    option_values = options(rendered)
    assert option_values["webhook-port"] == str(names.WEBHOOK_PORT)
    assert ports[port["targetPort"]]["containerPort"] == names.WEBHOOK_PORT
    mounts = rendered.containers()["tdcs-scheduler/extender"]["volumeMounts"]
    (mount,) = (mount_spec for mount_spec in mounts if mount_spec["name"] == "webhook")
    assert (mount["name"], mount["mountPath"]) == ("webhook", option_values["webhook-certificate"])
    volumes = rendered.one("Deployment", "tdcs-scheduler")["spec"]["template"]["spec"]["volumes"]
    (volume,) = (volume_spec for volume_spec in volumes if volume_spec["name"] == "webhook")
    data = rendered.one("Secret", volume["secret"]["secretName"])["data"]
    assert hook["clientConfig"]["caBundle"] == data["ca.crt"]
    authority, certificate = (
        x509.load_pem_x509_certificate(base64.b64decode(data[key])) for key in ("ca.crt", "tls.crt")
    )
    certificate.verify_directly_issued_by(authority)
    hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == [f"{called['name']}.{NAMESPACE}.svc"]
    key = serialization.load_pem_private_key(base64.b64decode(data["tls.key"]), password=None)
    assert key.public_key() == certificate.public_key()
    assert "claim-list-namespace" not in option_values
    assert not [obj for obj in rendered.all("ConfigMap") if obj["metadata"]["name"] == names.CLAIM_LIST]


def test_policy_and_webhook_have_the_same_conditions_but_for_the_claim(helm: Helm) -> None:
    def conditions(spec: Object) -> dict[str, str]:
        return {condition["name"]: condition["expression"] for condition in spec["matchConditions"]}

    policy = helm.template({"placeByData": '"Policy"'}).one("MutatingAdmissionPolicy", NAME)["spec"]
    webhooks = helm.template({"placeByData": '"Webhook"'}).one("MutatingWebhookConfiguration", NAME)
    by_policy, by_webhook = conditions(policy), conditions(webhooks["webhooks"][0])
    assert by_policy.pop("mounts-the-claim-of-a-dataset")
    assert by_webhook.pop("mounts-a-claim")
    assert by_webhook.pop("is-not-of-kubernetes") == '!request.namespace.startsWith("kube-")'
    assert by_policy == by_webhook
    assert len(by_policy) == 4
    assert names.ANNOTATION_DATA_AFFINITY in by_policy["asks-for-no-affinity"]
    assert names.LABEL_PLACE_BY_DATA in by_policy["is-not-opted-out"]
    assert names.LABEL_TRAINING_JOB in by_policy["is-of-no-training-job"]
