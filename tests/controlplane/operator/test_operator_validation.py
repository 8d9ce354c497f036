"""The API server itself refuses objects that cannot work, with a sentence that says what to change."""

import copy
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube, KubeRequestError, Object
from tests.support.objects import role_of

CHECKOUT = Path(__file__).parents[3]
API_VERSION = "tdcs.io/v1alpha2"


@pytest.fixture(scope="module")
def installed(shared_control_plane: ControlPlane) -> Kube:
    """A client of an API server that knows the custom resources."""
    shared_control_plane.kube.install_crds(CHECKOUT / "crds")
    return shared_control_plane.kube


@pytest.fixture(scope="module")
def shared_namespace(installed: Kube) -> Iterator[str]:
    """A namespace for objects that are refused, and so leave nothing behind."""
    name = f"refused-{uuid.uuid4().hex[:6]}"
    installed.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    installed.delete("Namespace", name)


def dataset(*, namespace: str, name: str = "pictures") -> Object:
    """A Dataset that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": {"uri": "s3://bucket/prefix", "secretRef": {"name": "keys"}}},
    }


def training_job(*, namespace: str, name: str = "train") -> Object:
    """A TrainingJob that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicaSpecs": [
                {
                    "name": "Worker",
                    "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
                }
            ],
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
        },
    }


POD = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}

ROLES = [
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


REFUSED_READERS: dict[str, tuple[str, Object, str]] = {
    "words": ("first", {}, "must be indices of workers"),
    "a range that ends before it begins": ("2-1", {}, "must be indices of workers"),
    "a worker that is not there": ("0-3", {}, "readers names a worker that the job may not have"),
    "mode Affinity": ("0", {"scheduling": {"mode": "Affinity"}}, "readers need scheduling.mode Extender"),
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


def cache_cluster(*, namespace: str, name: str = "cache") -> Object:
    """A CacheCluster that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "CacheCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
    }


def preload(*, namespace: str, name: str = "warm") -> Object:
    """A Preload that is accepted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Preload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"datasetRef": {"name": "pictures"}, "paths": ["train"]},
    }


MAKERS = {"Dataset": dataset, "Preload": preload, "TrainingJob": training_job, "CacheCluster": cache_cluster}


def edited(obj: Object, path: str, value: Any) -> Object:
    """A copy with the field at a dotted path set (numbers are indices); `...` removes it."""
    found = copy.deepcopy(obj)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    target: Any = found
    for step in parents:
        target = target[step] if isinstance(step, int) else target.setdefault(step, {})
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return found


BAD = [
    ("Dataset", "spec.source.uri", "http://host/data", "http is not supported, because"),
    ("Dataset", "spec.source.uri", "ftp://host/data", "the scheme must be s3 or file"),
    ("Dataset", "spec.source.uri", "file://data/x", "the folder must be absolute: write file:///folder"),
    ("Dataset", "spec.source.uri", "file:///nfs/data", "a file source has neither secretRef nor options"),
    ("Dataset", "spec.source.checkInterval", "1s", "must be at least 10s"),
    ("Dataset", "spec.source.checkInterval", "soon", "such as 90s, 10m or 1h30m"),
    ("Dataset", "spec.preload.percent", 0, "should be greater than or equal to 1"),
    ("Dataset", "spec.preload.percent", 101, "should be less than or equal to 100"),
    ("Dataset", "spec.preload.percent", 0.5, "must be of type integer"),
    ("Dataset", "spec.preload", {"percent": 50, "amount": "1Gi"}, "percent and amount exclude each other"),
    ("Dataset", "spec.preload.amount", "0", "must be a size above zero"),
    ("Dataset", "spec.preload.amount", "1e30", "must be below 8Ei"),
    ("Dataset", "spec.preload.bandwidth", "10E", "must be below 8Ei"),
    # The server would compute with numbers of a billion digits.
    ("Dataset", "spec.preload.bandwidth", "1e999999999", "must be below 8Ei"),
    ("Dataset", "spec.preload.amount", "1e-999999999", "must be a size above zero"),
    ("Preload", "spec.bandwidth", "1E+999999999", "must be below 8Ei"),
    ("CacheCluster", "spec.journal.size", "1e999999999", "must be below 8Ei"),
    ("CacheCluster", "spec.journal.size", "9" * 33, "may not be more than 32"),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.containers.0.resources",
        {"requests": {"memory": "1e999999999"}},
        "should match",
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.volumes",
        [{"name": "v", "emptyDir": {"sizeLimit": "1e999999999"}}],
        "should match",
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.volumes",
        [
            {
                "name": "v",
                "ephemeral": {
                    "volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1e999999999"}}}}
                },
            }
        ],
        "should match",
    ),
    ("Dataset", "spec.preload.bandwidth", "0", "leave it out for no limit"),
    ("Dataset", "spec.preload.paths", ["../other"], "nothing outside the source can be loaded"),
    ("Dataset", "spec.preload.paths", ["a/../../b"], "nothing outside the source can be loaded"),
    ("Dataset", "spec.preload.paths", ["/train"], "must be relative to the source"),
    ("Dataset", "spec.preload.startTime", "tomorrow", "must be of type date-time"),
    ("Dataset", "spec.placement", {"mode": "Replicate", "copies": 2}, "need nodeCount"),
    ("Dataset", "spec.placement.copies", 0, "should be greater than or equal to 1"),
    ("Preload", "spec.datasetRef", ..., "spec.datasetRef: Required value"),
    ("Preload", "spec.percent", 150, "should be less than or equal to 100"),
    (
        "Preload",
        "spec",
        {"datasetRef": {"name": "d"}, "percent": 50, "amount": 1},
        "percent and amount exclude",
    ),
    (
        "Preload",
        "spec",
        {"datasetRef": {"name": "d"}, "copies": 2, "nodes": ["a"]},
        "copies and nodes exclude each other",
    ),
    ("Preload", "spec.paths", ["../x"], "nothing outside the source can be loaded"),
    ("Preload", "metadata.name", "a.b", "metadata.name must be at most 63"),
    ("CacheCluster", "spec.profile", "Fast", 'supported values: "Tuned", "Stock"'),
    ("CacheCluster", "spec.sourceFolders", ["nfs"], "must be an absolute path on the nodes"),
    ("CacheCluster", "spec.journal.size", "0", "must be a size above zero"),
    ("Dataset", "spec.source.uri", "s3:///prefix", "the bucket is missing"),
    ("Dataset", "spec.source.uri", "s3://", "the bucket is missing"),
    ("Dataset", "spec.source.uri", "s3://user:key@bucket/p", "the bucket's name must be"),
    ("Dataset", "spec.source.uri", "s3://bucket/a/../b", "without '..'"),
    ("Dataset", "spec.source.uri", "s3://bucket/a\\..\\..\\b", "backslashes"),
    ("Dataset", "spec.source.uri", "s3://bucket/a/.\t./b", "control characters"),
    ("Dataset", "spec.source.uri", "s3://bucket/a/./b", "'.' as a folder"),
    ("Dataset", "spec.source.uri", "s3://bucket/a/.. /b", "without '..'"),
    ("Dataset", "spec.source.uri", "s3://bucket/a/%2e%2E/b", "without '..'"),
    ("Dataset", "spec.source.uri", "s3://bucket/a/..%5C..%2fb", "percent signs that stand for them"),
    ("Dataset", "spec.source", ..., "spec.source: Required value"),
    ("Dataset", "spec.source.secretRef", ..., "spec.source.secretRef: Required value: name a Secret"),
    ("Dataset", "spec.source.options.endpoint", "store:9000", "must be a URL such as"),
    ("Dataset", "spec.placement.mode", "Everywhere", 'supported values: "Auto", "Partition", "Replicate"'),
    ("Dataset", "spec.eviction.policy", "pin", "must be LRU, LRFU, NextUse, Pin or Timed, in this spelling"),
    ("Dataset", "spec.placement.nodeCount", 0, "should be greater than or equal to 1"),
    ("Dataset", "metadata.name", "a.b", "metadata.name must be at most 63"),
    ("TrainingJob", "spec.datasets.0.mountPath", "data", "must be an absolute path in the container"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/a/../b", "must be a plain path"),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "a", "mountPath": "/d"}, {"name": "b", "mountPath": "/d"}],
        "two datasets have the same mountPath",
    ),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "a", "mountPath": "/d"}, {"name": "b", "mountPath": "/d/e"}],
        "lies below another's, whose volume is read-only",
    ),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "a", "mountPath": "/d"}, {"name": "a", "mountPath": "/e"}],
        "Duplicate value",
    ),
    ("TrainingJob", "spec.datasets.0.readiness.percent", 101, "should be less than or equal to 100"),
    ("TrainingJob", "spec.workers", 0, "must be at least 1"),
    ("TrainingJob", "spec.replicaSpecs.0.replicas", 2, "the number of workers is spec.workers"),
    ("TrainingJob", "spec.replicaSpecs.0.template.spec.containers", [], "at least 1 items"),
    ("TrainingJob", "spec.replicaSpecs.0.template.spec.containers", ..., "Required value"),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.name",
        "PS",
        "a job needs workers: add an item with the name Worker",
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.name",
        "stage",
        'supported values: "Chief", "Launcher", "PS", "Worker"',
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs",
        [{"name": "PS", "replicas": 0, "template": POD}],
        "must be at least 1",
    ),
    ("TrainingJob", "spec.replicaSpecs", [{"name": "Worker", "template": POD}] * 2, "Duplicate value"),
    ("TrainingJob", "spec.replicaSpecs.0.template.spec.restartPolicy", "Always", "Never or OnFailure"),
    ("TrainingJob", "spec.replicaSpecs.0.template.metadata", "x", "must be of type object"),
    ("TrainingJob", "spec.replicaSpecs.0.template.metadata.labels", ["x"], "must be of type object"),
    ("TrainingJob", "spec.replicaSpecs.0.template.spec.volumes", "x", "must be of type array"),
    ("TrainingJob", "spec.replicaSpecs.0.template.spec.containers.0.env", "x", "must be of type array"),
    ("TrainingJob", "spec.framework", "Caffe", 'values: "TensorFlow", "PyTorch", "Horovod", "None"'),
    ("TrainingJob", "spec.datasets.0.name", "other/pictures", "a Dataset of the job's own namespace"),
    ("TrainingJob", "spec.datasets.0.readiness.timeout", "soon", "such as 90s, 10m or 1h30m"),
    ("TrainingJob", "spec.elastic", {"minReplicas": 3, "maxReplicas": 2}, "minReplicas must not be above"),
    ("TrainingJob", "spec.elastic", {"minReplicas": 2, "maxReplicas": 4}, "the number of workers must lie"),
    ("TrainingJob", "spec.scheduling.mode", "Luck", 'supported values: "Extender", "Affinity"'),
    ("TrainingJob", "spec.runPolicy.cleanPodPolicy", "Some", 'supported values: "Running", "All", "None"'),
    ("TrainingJob", "metadata.name", "t" * 51, "at most 50 lower-case letters"),
    ("TrainingJob", "metadata.name", "1st", "must begin with a letter"),
    ("CacheCluster", "spec.replicas", 0, "should be greater than or equal to 1"),
    ("CacheCluster", "spec.storage.tiers", [{"capacity": "0"}], "must be a size above zero"),
    ("CacheCluster", "spec.storage.tiers", [{"capacity": "lots"}], "must be a size above zero"),
    (
        "CacheCluster",
        "spec.storage.tiers",
        [{"capacity": "10E"}],
        "must be below 8Ei: sizes are 64-bit numbers",
    ),
    ("CacheCluster", "spec.storage.tiers", [{"path": "cache"}], "must be an absolute path on the nodes"),
    ("CacheCluster", "spec.storage.tiers", [{"path": "/a/../b"}], "must be an absolute path on the nodes"),
    ("CacheCluster", "spec.properties", {"user.home": "/"}, "begins with 'alluxio.'"),
    ("CacheCluster", "spec.worker.jvmOptions", ["-Xmx1g -Xms1g"], "one JVM option without blanks"),
    ("CacheCluster", "metadata.name", "c" * 21, "at most 20 lower-case letters"),
]


@pytest.mark.parametrize(("kind", "path", "value", "sentence"), BAD)
def test_a_bad_object_is_refused_with_a_sentence(
    installed: Kube, shared_namespace: str, kind: str, path: str, value: Any, sentence: str
) -> None:
    bad = edited(MAKERS[kind](namespace=shared_namespace), path, value)
    with pytest.raises(KubeRequestError) as refused:
        installed.create(bad)
    assert refused.value.code == 422
    assert sentence in str(refused.value)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_smallest_useful_object_is_accepted_and_filled_in(
    installed: Kube, namespace: str, kind: str
) -> None:
    made = installed.create(MAKERS[kind](namespace=namespace))
    spec = made["spec"]
    if kind == "Dataset":
        assert spec["cacheClusterRef"] == {"name": "default"}
        assert spec["preload"] == {"enabled": True, "paths": []}
        assert (spec["placement"]["mode"], spec["placement"]["copies"]) == ("Auto", 1)
        assert spec["source"]["checkInterval"] == "5m"
    if kind == "TrainingJob":
        assert spec["datasets"][0]["readiness"] == {"percent": 0}
        assert spec["workers"] == 1
        assert spec["runPolicy"] == {"suspend": False, "cleanPodPolicy": "Running"}
        assert spec["scheduling"] == {"mode": "Extender", "gang": True}
    if kind == "CacheCluster":
        assert spec["replicas"] == 5000
        assert spec["storage"]["tiers"] == [{"medium": "SSD", "capacity": "10Gi"}]


def test_the_path_of_a_tier_cannot_be_changed_and_its_size_can(installed: Kube, namespace: str) -> None:
    made = installed.create(cache_cluster(namespace=namespace))["metadata"]["name"]

    def change(**tier: str) -> None:
        patch = {"spec": {"storage": {"tiers": [tier]}}}
        installed.patch("CacheCluster", made, patch, namespace=namespace)

    change(capacity="20Gi")
    with pytest.raises(KubeRequestError, match="the path of a tier cannot be changed"):
        change(path="/mnt/nvme")


FROZEN = [
    (
        "CacheCluster",
        "spec.storage.tiers.0.path",
        "/mnt/other",
        "the path of a tier cannot be changed",
    ),
    ("Dataset", "spec.source.uri", "s3://other/prefix", "create another Dataset for another source"),
    ("Dataset", "spec.source.options.region", "mars", "create another Dataset"),
    ("Dataset", "spec.cacheClusterRef.name", "other", "create another Dataset"),
    ("Preload", "spec.paths", ["val"], "delete the Preload and create it anew"),
    ("Preload", "spec.nodes", ["a"], "delete the Preload and create it anew"),
    ("TrainingJob", "spec.workers", 2, "cannot be changed without elastic"),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.containers.0.image",
        "other",
        "cannot be changed",
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.containers.0.command",
        ["x"],
        "cannot be changed",
    ),
    ("TrainingJob", "spec.replicaSpecs.0.template.spec.nodeSelector", {"a": "b"}, "cannot be changed"),
    (
        "TrainingJob",
        "spec.replicaSpecs",
        [{"name": "Worker", "template": POD}, {"name": "Chief", "template": POD}],
        "cannot be changed once created",
    ),
    ("TrainingJob", "spec.framework", "TensorFlow", "cannot be changed once created"),
    ("TrainingJob", "spec.scheduling.mode", "Affinity", "cannot be changed once created"),
    ("TrainingJob", "spec.scheduling.priorityClassName", "high", "cannot be changed once created"),
    ("TrainingJob", "spec.elastic", {"minReplicas": 1, "maxReplicas": 2}, "cannot be changed once created"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/other", "delete the TrainingJob and create it anew"),
]


@pytest.mark.parametrize(("kind", "path", "value", "sentence"), FROZEN)
def test_what_children_are_made_from_cannot_be_changed(
    installed: Kube, namespace: str, kind: str, path: str, value: Any, sentence: str
) -> None:
    made = installed.create(MAKERS[kind](namespace=namespace))
    changed = edited(made, path, value)
    with pytest.raises(KubeRequestError) as refused:
        installed.patch(kind, made["metadata"]["name"], {"spec": changed["spec"]}, namespace=namespace)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_object_of_the_former_version_is_refused_with_the_remedy(
    installed: Kube, shared_namespace: str, kind: str
) -> None:
    former = {**MAKERS[kind](namespace=shared_namespace, name="former"), "apiVersion": "tdcs.io/v1alpha1"}
    for send in (installed.create, installed.apply):
        with pytest.raises(KubeRequestError, match=r"rewrite the file for .* with 'tdcs migrate FILE'"):
            send(former)
    assert installed.resource(kind).api_version == "tdcs.io/v1alpha2"  # what kubectl get uses


DURATIONS = ("2d", "90", "1h 30m", "soon", "")


@pytest.mark.parametrize("duration", DURATIONS)
def test_what_is_no_duration_is_refused_with_an_example(
    installed: Kube, shared_namespace: str, duration: str
) -> None:
    for kind, path in (
        ("CacheCluster", "spec.scaling.drainTimeout"),
        ("Dataset", "spec.source.checkInterval"),
        ("TrainingJob", "spec.datasets.0.readiness.timeout"),
    ):
        with pytest.raises(KubeRequestError, match="such as 90s, 10m or 1h30m; a day is 24h"):
            installed.create(edited(MAKERS[kind](namespace=shared_namespace), path, duration))


def test_durations_of_kubernetes_are_accepted(installed: Kube, namespace: str) -> None:
    for number, duration in enumerate(("90s", "1h30m", "1.5h", "1m500ms", "0s")):
        made = dataset(namespace=namespace, name=f"d{number}")
        installed.create(edited(made, "spec.source.checkInterval", duration))
    with pytest.raises(KubeRequestError, match="must be at least 10s"):
        installed.create(edited(dataset(namespace=namespace), "spec.source.checkInterval", "9s"))


def test_the_scale_subresource_of_a_job_is_its_workers(installed: Kube, namespace: str) -> None:
    fixed = training_job(namespace=namespace, name="fixed")
    elastic = training_job(namespace=namespace, name="elastic")
    elastic["spec"] |= {"framework": "PyTorch", "elastic": {"minReplicas": 1, "maxReplicas": 3}}
    for job in (fixed, elastic):
        installed.create(job)
    scale = {"spec": {"replicas": 2}}
    assert installed.get_under("TrainingJob", "fixed", "scale", namespace=namespace)["spec"] == {
        "replicas": 1
    }
    with pytest.raises(KubeRequestError, match="cannot be changed without elastic"):
        installed.patch("TrainingJob", "fixed", scale, namespace=namespace, subresource="scale")
    installed.patch("TrainingJob", "elastic", scale, namespace=namespace, subresource="scale")
    assert installed.get("TrainingJob", "elastic", namespace=namespace)["spec"]["workers"] == 2
    with pytest.raises(
        KubeRequestError, match=r"must lie between elastic\.minReplicas and elastic\.maxReplicas"
    ):
        installed.patch(
            "TrainingJob", "elastic", {"spec": {"replicas": 4}}, namespace=namespace, subresource="scale"
        )
