"""What the API server refuses of a TrainingJob as a whole: its roles, templates and readers."""

import copy

import pytest
from tests.controlplane.validation.objects import POD, training_job
from tests.support.kube import Kube, KubeRequestError, Object
from tests.support.kube.objects import role_of

ROLES = [
    ("Horovod", {}, "Horovod needs a Launcher"),
    ("Horovod", {"PS": 1}, "Horovod has no role PS"),
    ("PyTorch", {"Chief": 1}, "only TensorFlow has the role Chief"),
    ("TensorFlow", {"Launcher": 1}, "only Horovod has the role Launcher"),
    ("TensorFlow", {"PS": 1}, "parameter servers need a Chief"),
    ("TensorFlow", {"Chief": 2}, "the Chief is one pod"),
    ("Horovod", {"Launcher": 2}, "the Launcher is one pod"),
]


@pytest.mark.parametrize(("framework", "roles", "sentence"), ROLES)
def test_a_role_that_the_framework_does_not_know_is_refused(
    installed: Kube, shared_namespace: str, framework: str, roles: dict[str, int], sentence: str
) -> None:
    job = training_job(namespace=shared_namespace)
    job["spec"]["framework"] = framework
    for role, replicas in roles.items():
        job["spec"]["replicaSpecs"].append({"name": role, "replicas": replicas, "template": POD})
    with pytest.raises(KubeRequestError) as refused:
        installed.create(job)
    assert sentence in str(refused.value)


def test_every_role_of_a_framework_is_accepted(installed: Kube, namespace: str) -> None:
    for framework, roles in (
        ("TensorFlow", ("PS", "Chief")),
        ("Horovod", ("Launcher",)),
        ("PyTorch", ("PS",)),
    ):
        job = training_job(namespace=namespace, name=framework.lower())
        job["spec"]["framework"] = framework
        for role in roles:
            job["spec"]["replicaSpecs"].append({"name": role, "template": POD})
        installed.create(job)


NO_KEY = {"nodeSelectorTerms": [{"matchExpressions": [{"operator": "Exists"}]}]}

UNREADABLE: dict[str, tuple[Object, Object]] = {
    "resources": ({}, {"resources": "lots"}),
    "limits": ({}, {"resources": {"limits": {"nvidia.com/gpu": "many"}}}),
    "nodeSelector": ({"nodeSelector": ["gpu"]}, {}),
    "key": ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NO_KEY}}}, {}),
    "tolerations": ({"tolerations": ["all"]}, {}),
    "priorityClassName": ({"priorityClassName": 7}, {}),
}


@pytest.mark.parametrize("field", UNREADABLE)
def test_a_template_that_the_queue_could_not_read_is_refused(
    installed: Kube, shared_namespace: str, field: str
) -> None:
    pod, container = UNREADABLE[field]
    job = training_job(namespace=shared_namespace)
    spec = role_of(job)["template"]["spec"]
    spec |= pod
    spec["containers"][0] |= container
    with pytest.raises(KubeRequestError) as refused:
        installed.create(job)
    assert field in str(refused.value)


TYPOS: dict[str, Object] = {
    "spec.restartpolicy": {"restartpolicy": "Never"},
    "spec.affinity.nodeAfinity": {"affinity": {"nodeAfinity": {}}},
    "spec.volumes[0].nfs.srever": {"volumes": [{"name": "v", "nfs": {"srever": "nfs", "path": "/data"}}]},
    "spec.containers[0].resorces": {"containers": [{"name": "c", "image": "i", "resorces": {}}]},
    "spec.containers[0].env[0].valueForm": {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "valueForm": {}}]}]
    },
}


@pytest.mark.parametrize("field", TYPOS)
def test_a_field_that_no_pod_has_is_refused_as_kubectl_has_it_refused_of_a_pod(
    installed: Kube, shared_namespace: str, field: str
) -> None:
    job = training_job(namespace=shared_namespace)
    role_of(job)["template"]["spec"] |= TYPOS[field]
    with pytest.raises(KubeRequestError) as refused:
        installed.create(job, strict=True)
    assert f'unknown field "spec.replicaSpecs[0].template.{field}"' in str(refused.value)


def test_a_template_with_all_that_pods_have_is_kept_as_it_is(installed: Kube, namespace: str) -> None:
    pod: Object = {
        "securityContext": {"fsGroup": 1, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "terminationGracePeriodSeconds": 5,
        "volumes": [
            {"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}], "optional": True}},
            {"name": "b", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["sh", "-c", "true"],
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 3},
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "envFrom": [{"secretRef": {"name": "s"}, "prefix": "P_"}],
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}, "claims": [{"name": "r"}]},
                "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "p", "readOnly": True}],
            }
        ],
        "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
    }
    job = training_job(namespace=namespace)
    role_of(job)["template"]["spec"] = pod
    created = installed.create(job, strict=True)
    assert role_of(created)["template"]["spec"] == pod


REFUSED_READERS: dict[str, tuple[str, Object, str]] = {
    "words": ("first", {}, "must be indices of workers"),
    "a range that ends before it begins": ("2-1", {}, "must be indices of workers"),
    "a worker that is not there": ("0-3", {}, "readers of dataset pictures names a worker"),
    "mode Affinity": (
        "0",
        {"scheduling": {"mode": "Affinity"}},
        "readers of dataset pictures needs scheduling.mode Extender",
    ),
    "beyond the fewest workers of an elastic job": (
        "0-1",
        {"framework": "PyTorch", "elastic": {"minReplicas": 1, "maxReplicas": 3}},
        "of elastic jobs to elastic.minReplicas less 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED_READERS)
def test_readers_that_cannot_be_are_refused(installed: Kube, shared_namespace: str, name: str) -> None:
    readers, more, sentence = REFUSED_READERS[name]
    job = training_job(namespace=shared_namespace)
    job["spec"]["workers"] = 3
    job["spec"]["datasets"][0]["readers"] = readers
    job["spec"] |= more
    with pytest.raises(KubeRequestError) as refused:
        installed.create(job)
    assert sentence in str(refused.value)


def test_a_pipeline_whose_first_workers_read_is_accepted(installed: Kube, namespace: str) -> None:
    for number, readers in enumerate(("0", "0-1", "0,2", "0-1,2")):
        job = training_job(namespace=namespace, name=f"pipeline-{number}")
        job["spec"]["workers"] = 3
        job["spec"]["datasets"][0]["readers"] = readers
        installed.create(job)


def test_a_template_with_another_priority_class_than_the_job_is_refused(
    installed: Kube, shared_namespace: str
) -> None:
    for scheduling, worker, chief in (("high", "low", ""), ("", "low", ""), ("", "", "low")):
        job = training_job(namespace=shared_namespace)
        job["spec"]["replicaSpecs"].append({**copy.deepcopy(role_of(job)), "name": "Chief"})
        job["spec"] |= {"framework": "TensorFlow"}
        if scheduling:
            job["spec"]["scheduling"] = {"priorityClassName": scheduling}
        for role, name in (("Worker", worker), ("Chief", chief)):
            if name:
                role_of(job, role)["template"]["spec"]["priorityClassName"] = name
        with pytest.raises(KubeRequestError) as refused:
            installed.create(job)
        assert "the job has one place in the queue" in str(refused.value)


@pytest.mark.parametrize("framework", ["TensorFlow", "Horovod"])
def test_a_framework_that_lists_its_workers_at_the_start_cannot_be_elastic(
    installed: Kube, shared_namespace: str, framework: str
) -> None:
    job = training_job(namespace=shared_namespace)
    job["spec"] |= {"framework": framework, "elastic": {"minReplicas": 1, "maxReplicas": 2}}
    with pytest.raises(KubeRequestError) as refused:
        installed.create(job)
    assert "their number cannot change: remove elastic" in str(refused.value)


NEVER_NEEDED = "needs restartPolicy Never in all templates"
REFUSED_POLICIES: dict[str, tuple[Object, str, str]] = {
    "two bounds": ({"backoffLimit": 1, "failurePolicy": {"maxRestarts": 1}}, "Never", "are the same bound"),
    "none, and some": (
        {"failurePolicy": {"restart": "None", "maxRestarts": 1}},
        "Never",
        "with failurePolicy.restart None nothing is restarted",
    ),
    "all, and in place": ({"failurePolicy": {"restart": "All"}}, "OnFailure", NEVER_NEEDED),
    "exit codes, and in place": (
        {"failurePolicy": {"onExitCodes": [{"action": "Ignore", "values": [3]}]}},
        "OnFailure",
        NEVER_NEEDED,
    ),
    "a word that is none": ({"failurePolicy": {"restart": "Everything"}}, "Never", "Unsupported value"),
    "the exit code of success": (
        {"failurePolicy": {"onExitCodes": [{"action": "Ignore", "values": [0]}]}},
        "Never",
        "must be between 1 and 255",
    ),
}


@pytest.mark.parametrize("policy", REFUSED_POLICIES)
def test_a_failure_policy_that_contradicts_itself_or_the_templates_is_refused(
    installed: Kube, shared_namespace: str, policy: str
) -> None:
    run_policy, restart, sentence = REFUSED_POLICIES[policy]
    job = training_job(namespace=shared_namespace)
    job["spec"]["runPolicy"] = run_policy
    role_of(job)["template"]["spec"]["restartPolicy"] = restart
    with pytest.raises(KubeRequestError) as refused:
        installed.create(job)
    assert sentence in str(refused.value)
