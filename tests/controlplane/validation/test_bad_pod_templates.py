"""The API server refuses pod templates, selectors and limits that no pod or Dataset could keep, and says why."""

from typing import Any

import pytest
from tests.controlplane.validation.objects import MAKERS, edited, training_job
from tests.support.kube import Kube, KubeRequestError

TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def _term(**requirement: Any) -> list[Any]:
    return [{"matchExpressions": [{"key": "gpu", **requirement}]}]


BAD_PODS: list[tuple[str, Any, str]] = [
    ("containers.0.ports", [{"containerPort": 0}], "must be a port, a number between 1 and 65535"),
    ("containers.0.ports", [{"containerPort": 99999}], "must be a port, a number between 1 and 65535"),
    ("containers.0.ports", [{"containerPort": 80, "name": "UPPER_"}], "15 at most, with a letter among them"),
    ("containers.0.ports", [{"containerPort": 80, "protocol": "HTTP"}], "must be TCP, UDP or SCTP"),
    (
        "containers.0.env",
        [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "has a value and valueFrom: remove one of the two",
    ),
    ("containers.0.env", [{"name": "A", "valueFrom": {}}], "must have one of configMapKeyRef, fieldRef"),
    ("containers.0.envFrom", [{}], "must have one of configMapRef and secretRef"),
    ("containers.0.envFrom", [{"secretRef": {}}], "secretRef.name: Required value"),
    ("containers.0.livenessProbe", {}, "must have one of exec, grpc, httpGet and tcpSocket"),
    ("containers.0.livenessProbe", {"exec": {"command": ["x"]}, "periodSeconds": -1}, "must be 1 or more"),
    ("containers.0.lifecycle", {"preStop": {}}, "must have one of exec, httpGet, sleep and tcpSocket"),
    ("containers.0.securityContext", {"runAsUser": -1}, "must be 0 or more"),
    (
        "containers.0.securityContext",
        {"seccompProfile": {"type": "Default"}},
        "must be Localhost, RuntimeDefault or",
    ),
    ("containers.0.terminationMessagePolicy", "Both", "must be File or FallbackToLogsOnError"),
    ("containers.0.volumeMounts", [{"name": "a", "mountPath": ""}], "must be a folder"),
    ("containers.0.resources", {"limits": {"amd.com/gpu": "500m"}}, "is asked for by a whole number"),
    ("containers.0.resources", {"limits": {"nvidia/com/gpu": 1}}, "has a name that no resource has"),
    ("initContainers", [{"name": "main", "image": "i"}], "an init container has the name of a container"),
    ("volumes", [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}], "has two sources at once"),
    ("volumes", [{"name": "v", "emptyDir": {"medium": "RAM"}}], "must be Memory or left out"),
    (
        "volumes",
        [{"name": "v", "hostPath": {"path": "/x", "type": "Dir"}}],
        "must be DirectoryOrCreate, Directory",
    ),
    ("volumes", [{"name": "v", "hostPath": {"path": "/a/../b"}}], "must be a folder without '..'"),
    ("volumes", [{"name": "v", "secret": {}}], "secret.secretName: Required value"),
    (
        "volumes",
        [{"name": "v", "configMap": {"name": "c", "defaultMode": 9999}}],
        "an octal number up to 0777",
    ),
    ("nodeSelector", {"a b": "c"}, "a key must be the key of a label"),
    ("tolerations", [{"key": "a b", "operator": "Exists"}], "must be the key of a label"),
    (
        "tolerations",
        [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
        "belongs to effect NoExecute",
    ),
    (TERMS, [], "needs a term in nodeSelectorTerms"),
    (TERMS, _term(operator="In"), "operators In and NotIn need values"),
    (TERMS, _term(operator="Exists", values=["x"]), "compare no values: remove them"),
    (TERMS, _term(operator="Gt", values=["1", "2"]), "operators Gt and Lt compare one value"),
    (
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        [{"weight": 0, "preference": {}}],
        "must be between 1 and 100",
    ),
    (
        "topologySpreadConstraints",
        [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "must be 1 or more",
    ),
    (
        "topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Maybe"}],
        "must be DoNotSchedule or ScheduleAnyway",
    ),
    ("serviceAccountName", "A B", "must be a name of lower-case letters"),
    ("hostname", "A_B", "must be of lower-case letters, digits and '-'"),
    ("schedulerName", "my scheduler", "must be a name of lower-case letters"),
    ("runtimeClassName", "A B", "must be a name of lower-case letters"),
    ("preemptionPolicy", "Maybe", "must be Never or PreemptLowerPriority"),
    ("dnsPolicy", "None", "dnsPolicy None needs dnsConfig.nameservers"),
    ("hostAliases", [{"ip": "x"}], "must be an IP address"),
    ("os", {"name": "windoze"}, "must be linux or windows"),
    ("imagePullSecrets", [{}], "imagePullSecrets[0].name: Required value"),
    ("securityContext", {"fsGroup": -5}, "must be 0 or more"),
]
"""A field below a template's spec, a wrong value of it, and what is said."""

BAD_OTHERS: list[tuple[str, str, Any, str]] = [
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.metadata",
        {"labels": {"a b": "c"}},
        "a key must be the key",
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.metadata",
        {"annotations": {"tdcs.io/target": "x86-64-v9"}},
        "tdcs.io/target must be one of x86-64, x86-64-v2, x86-64-v3",
    ),
    ("Dataset", "spec.placement", {"nodeSelector": {"a b": "c"}}, "a key must be the key of a label"),
    ("Dataset", "spec.eviction", {"policy": "Timed", "ttl": "0s"}, "must be above zero, such as 12h"),
    (
        "Dataset",
        "spec.sharedWith",
        [{"namespaceSelector": {"matchLabels": {"a b": "c"}}}],
        "a key must be the key of a label",
    ),
    ("CacheCluster", "spec.nodeSelector", {"a b": "c"}, "a key must be the key of a label"),
    (
        "CacheCluster",
        "spec.tolerations",
        [{"key": "a b", "operator": "Exists"}],
        "must be the key of a label",
    ),
    (
        "CacheCluster",
        "spec.storage",
        {"tiers": [{"path": "/var/lib/kubelet/x"}]},
        "belongs to the node's system",
    ),
    ("CacheCluster", "spec.limits", {"bytesPerDataset": "0"}, "must be a size above zero, such as 10Ti"),
    (
        "CacheCluster",
        "spec.limits",
        {"filesPerDataset": 20, "filesPerNamespace": 10},
        "filesPerDataset must not be above filesPerNamespace",
    ),
    (
        "CacheCluster",
        "spec.limits",
        {"bytesPerDataset": "2Ti", "bytesPerNamespace": "1Ti"},
        "bytesPerDataset must not be above bytesPerNamespace",
    ),
]

NO_EXPRESSIONS: list[tuple[str, str, Any, str]] = [
    ("Dataset", "spec.source.include", ["#x"], "must be a pattern as in .gitignore"),
    ("CacheCluster", "spec.sources", [{"name": "a", "endpoints": ["store"]}], "https://HOST[:PORT] or *"),
    (
        "CacheCluster",
        "spec.sources",
        [{"name": "a", "buckets": ["s3://b"]}],
        "must be BUCKET or BUCKET/PREFIX",
    ),
    (
        "CacheCluster",
        "spec.sources",
        [{"name": "a", "folders": ["rel"]}],
        "must be an absolute path on the nodes",
    ),
    ("CacheCluster", "spec.sources", [{"name": "a", "proxy": "proxy:3128"}], "must be http://HOST[:PORT]"),
    ("Dataset", "spec.sharedWith", [{"namespaces": ["Team B"]}], "must be the name of a namespace"),
]
"""What was answered with a regular expression."""

GOOD_PODS: list[tuple[str, Any]] = [
    (
        "containers.0.ports",
        [{"containerPort": 8080, "name": "http", "protocol": "TCP"}, {"containerPort": 9}],
    ),
    ("containers.0.env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    ("containers.0.livenessProbe", {"httpGet": {"port": "http"}, "periodSeconds": 5}),
    ("containers.0.resources", {"limits": {"rdma/hca": 1, "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}}),
    (
        "volumes",
        [
            {"name": "v"},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "n", "nfs": {"server": "s", "path": "/"}},
        ],
    ),
    ("volumes", [{"name": "v", "secret": {"secretName": "s", "defaultMode": 0o400}}]),
    ("nodeSelector", {"kubernetes.io/arch": "amd64", "Zone_1": ""}),
    ("tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]),
    (
        "affinity",
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": _term(operator="Gt", values=["4"])
                }
            }
        },
    ),
    ("serviceAccountName", "trainer.eu"),
    ("hostAliases", [{"ip": "fd00::1", "hostnames": ["store"]}]),
]
"""What people write, and the same rules let through."""


def _with_pod_field(field: str, value: Any, *, namespace: str) -> Any:
    if field == TERMS:
        terms = {"nodeSelectorTerms": value}
        field, value = (
            "affinity",
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        )
    elif field.startswith("affinity."):
        _, kind, when = field.split(".")
        field, value = "affinity", {kind: {when: value}}
    return edited(training_job(namespace=namespace), f"spec.replicaSpecs.0.template.spec.{field}", value)


def _refusal(installed: Kube, bad: Any) -> str:
    with pytest.raises(KubeRequestError) as refused:
        installed.create(bad)
    assert refused.value.code == 422
    return str(refused.value)


@pytest.mark.parametrize(("field", "value", "sentence"), BAD_PODS)
def test_a_pod_template_that_makes_no_pod_is_refused_with_a_sentence(
    installed: Kube, shared_namespace: str, field: str, value: Any, sentence: str
) -> None:
    assert sentence in _refusal(installed, _with_pod_field(field, value, namespace=shared_namespace))


@pytest.mark.parametrize(("kind", "path", "value", "sentence"), [*BAD_OTHERS, *NO_EXPRESSIONS])
def test_keys_and_limits_that_nothing_can_meet_are_refused_with_a_sentence(
    installed: Kube, shared_namespace: str, kind: str, path: str, value: Any, sentence: str
) -> None:
    assert sentence in _refusal(installed, edited(MAKERS[kind](namespace=shared_namespace), path, value))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Dataset", "spec.preload.percent", 101),
        ("Preload", "spec.copies", 0),
        ("CacheCluster", "spec.limits", {"files": 0}),
        ("TrainingJob", "spec.workers", 0),
        *(row[:3] for row in NO_EXPRESSIONS),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_with_one_error(
    installed: Kube, shared_namespace: str, kind: str, path: str, value: Any
) -> None:
    message = _refusal(installed, edited(MAKERS[kind](namespace=shared_namespace), path, value))
    assert "must be " in message
    assert "should match" not in message, "a regular expression"
    assert "rules were not checked" not in message, "a second error that says nothing of the object"


@pytest.mark.parametrize(("field", "value"), GOOD_PODS)
def test_a_pod_template_as_people_write_it_is_accepted(
    installed: Kube, namespace: str, field: str, value: Any
) -> None:
    assert installed.create(_with_pod_field(field, value, namespace=namespace))
