"""The API server itself refuses objects that cannot work, with a sentence that says what to change."""

from typing import Any

import pytest
from tests.controlplane.validation.objects import MAKERS, POD, dataset, edited
from tests.support.kube import Kube, KubeRequestError

BAD = [
    (
        "Dataset",
        "spec.source.uri",
        "ftp://host/data",
        "the scheme must be s3, gs, az, abfss, file, http, https, hf or pvc",
    ),
    ("Dataset", "spec.source.uri", "http://me:secret@host/data", "without a user before the host"),
    ("Dataset", "spec.source.uri", "https://host/data/../up", "without '..'"),
    ("Dataset", "spec.source.uri", "https://host/data?token=1", "without '..'"),
    ("Dataset", "spec.source.uri", "hf://datasets/owner", "named as hf://datasets/owner/name"),
    (
        "Dataset",
        "spec.source.uri",
        "hf://datasets/owner/name@main",
        "its revision stands in options.revision",
    ),
    ("Dataset", "spec.source.options.revision", "main", "revision is one of hf sources"),
    ("Dataset", "spec.source.options.index", "files.json", "index and files are options of http sources"),
    ("Dataset", "spec.source.options.files", ["/etc/passwd"], "must be relative to uri"),
    (
        "Dataset",
        "spec.source",
        {"uri": "https://host/data", "options": {"index": "list", "files": ["a"]}},
        "remove one of the two",
    ),
    ("Dataset", "spec.source", {"options": {}}, "needs either uri, or datasetRef"),
    (
        "Dataset",
        "spec.source",
        {"uri": "s3://bucket/data", "datasetRef": {"namespace": "a", "name": "b"}},
        "needs either uri, or datasetRef",
    ),
    (
        "Dataset",
        "spec.source",
        {"datasetRef": {"namespace": "a", "name": "b"}, "secretRef": {"name": "keys"}},
        "are those of the other Dataset: remove them",
    ),
    (
        "Dataset",
        "spec.source",
        {"datasetRef": {"namespace": "a", "name": "b"}, "options": {"region": "x"}},
        "are those of the other Dataset: remove them",
    ),
    ("Dataset", "spec.sharedWith", [{"namespaces": ["Team B"]}], "must be the name of a namespace"),
    ("Dataset", "spec.sharedWith", [{"namespaces": ["b"], "paths": ["/train"]}], "below the source"),
    (
        "Dataset",
        "spec.source",
        {"uri": "https://host/data", "options": {"endpoint": "https://other"}},
        "endpoint one of s3, gs, az and hf sources",
    ),
    (
        "Dataset",
        "spec.source",
        {"uri": "hf://team/model", "options": {"region": "eu"}},
        "region, pathStyle and requesterPays are options of s3 sources",
    ),
    (
        "Dataset",
        "spec.source",
        {"uri": "gs://bucket/data", "options": {"pathStyle": True}},
        "region, pathStyle and requesterPays are options of s3 sources",
    ),
    (
        "Dataset",
        "spec.source.uri",
        "gs:///data",
        "a bucket of Google Cloud Storage is named as gs://bucket/prefix",
    ),
    ("Dataset", "spec.source.uri", "gs://me@bucket/data", "a bucket of Google Cloud Storage is named as"),
    (
        "Dataset",
        "spec.source.uri",
        "az://container",
        "a container of Azure is named as az://account/container",
    ),
    ("Dataset", "spec.source.uri", "az://Account/container", "a container of Azure is named as az://account"),
    ("Dataset", "spec.source.uri", "abfss://data@account/x", "named as abfss://container@account.dfs.core"),
    (
        "Dataset",
        "spec.source",
        {"uri": "abfss://data@account.dfs.core.windows.net/x", "options": {"region": "here"}},
        "region, pathStyle and requesterPays are options of s3 sources",
    ),
    ("Dataset", "spec.source.uri", "pvc:///train", "is named as pvc://claim[/folder]"),
    ("Dataset", "spec.source.uri", "pvc://Photos", "is named as pvc://claim[/folder]"),
    ("Dataset", "spec.source.uri", "pvc://photos/../other", "without '..'"),
    (
        "Dataset",
        "spec.source",
        {"uri": "pvc://photos", "secretRef": {"name": "keys"}},
        "a pvc source has no secretRef",
    ),
    (
        "Dataset",
        "spec.source",
        {"uri": "pvc://photos", "options": {"endpoint": "https://host"}},
        "endpoint one of s3, gs, az and hf sources",
    ),
    (
        "Dataset",
        "spec.source",
        {"uri": "pvc://photos", "options": {"runAsUser": 0}},
        "must be between 1 and 2147483647",
    ),
    (
        "Dataset",
        "spec.source",
        {"uri": "s3://bucket", "options": {"runAsUser": 1000}},
        "runAsUser and runAsGroup are options of pvc sources alone",
    ),
    ("Dataset", "spec.source.uri", "file://data/x", "the folder must be absolute: write file:///folder"),
    ("Dataset", "spec.source.uri", "file:///", "the folder is missing after the three slashes"),
    ("Dataset", "spec.source.uri", "file:///nfs/data", "a file source has neither secretRef nor options"),
    ("Dataset", "spec.source.checkInterval", "1s", "must be at least 10s"),
    ("Dataset", "spec.source.checkInterval", "soon", "such as 90s, 10m or 1h30m"),
    ("Dataset", "spec.preload.percent", 0, "must be between 1 and 100"),
    ("Dataset", "spec.preload.percent", 101, "must be between 1 and 100"),
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
        "is no quantity, such as 4, 500m or 2Gi",
    ),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.volumes",
        [{"name": "v", "emptyDir": {"sizeLimit": "1e999999999"}}],
        "is no quantity, such as 4, 500m or 2Gi",
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
    *(
        (
            "TrainingJob",
            "spec.datasets",
            [{"name": "pictures", "mountPath": path}],
            "choose a path such as /data",
        )
        for path in ("/root", "/home", "/opt", "/opt/conda/lib", "/tmp", "/var/log", "/usr/src")
    ),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "pictures", "mountPath": "/data/./x"}],
        "must be a plain path",
    ),
    ("TrainingJob", "spec.datasets", [{"name": "pictures", "mountPath": "/."}], "must be a plain path"),
    ("TrainingJob", "spec.datasets", [{"name": "pictures", "mountPath": "/data "}], "no blank at its end"),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "pictures", "mountPath": "/da\nta"}],
        "must have no line breaks",
    ),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "Pictures", "mountPath": "/data"}],
        "no Dataset can have this name",
    ),
    ("TrainingJob", "spec.scheduling.priorityClassName", "Very High", "no PriorityClass can have this name"),
    ("Preload", "spec.datasetRef.name", "Pictures", "no Dataset can have this name"),
    ("Dataset", "spec.placement.nodeSelector", {"zone": "a b"}, "must be of letters, digits"),
    *(
        ("Dataset", "spec.eviction", {"policy": "Timed", "schedule": line}, "a value is out of range")
        for line in (
            "99 * * * *",
            "0 24 * * *",
            "0 3 0 * *",
            "0 3 * 13 *",
            "0 3 * * 8",
            "*/0 * * * *",
            "0 3 * * Mo",
        )
    ),
    ("CacheCluster", "spec.priorityClassName", "A B", "no PriorityClass can have this name"),
    ("CacheCluster", "spec.image", "tdcs worker", "must be an image, without blanks"),
    *(
        ("CacheCluster", "spec.storage.tiers", [{"path": path}], "belongs to the node's system")
        for path in ("/etc", "/etc/tdcs", "/usr", "/var/lib", "/home")
    ),
    *(
        (
            "TrainingJob",
            "spec.replicaSpecs.0.template.spec.containers.0.resources",
            {kind: {"nvidia.com/gpu": amount}},
            "nvidia.com/gpu is a whole number of GPUs",
        )
        for kind in ("limits", "requests")
        for amount in ("1.5", "500m", "1Gi")
    ),
    *(
        ("TrainingJob", f"spec.replicaSpecs.0.template.spec.{field}", value, sentence)
        for field, value, sentence in (
            ("containers.0.command", "python train.py", "must be of type array"),
            ("containers.0.args", [1], "must be of type string"),
            ("containers.0.image", "https://registry/train:1", "without blanks and without https://"),
            ("containers.0.image", "my train", "without blanks and without https://"),
            (
                "containers.0.resources",
                {"requests": {"nvidia.com/gpu": 1}},
                "nvidia.com/gpu belongs in limits",
            ),
            ("containers.0.resources", {"limits": {"gpu": 1}}, "has a name that no resource has"),
            (
                "containers.0.resources",
                {"limits": {"memory": "100m"}},
                "memory in m is in thousandths of a byte: write Mi",
            ),
            (
                "containers.0.resources",
                {"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}},
                "requests of memory must not be above its limits",
            ),
            ("containers.0.volumeMounts", [{"name": "v"}], "mountPath: Required value"),
            ("containers.0.env", [{"value": "x"}], "name: Required value"),
            (
                "containers",
                [{"name": "main", "image": "a"}, {"name": "main", "image": "b"}],
                "two containers have the same name",
            ),
            ("hostNetwork", "yes", "must be of type boolean"),
            ("volumes", [{"name": "v", "hostPath": {}}], "path: Required value"),
            ("tolerations", [{"key": "gpu", "operator": "Exists", "value": "x"}], "Exists compares no value"),
            ("tolerations", [{"value": "x"}], "without a key operator must be Exists"),
            ("containers.0.resources", {"limits": {"cpu": "-1"}}, "is no quantity, such as 4, 500m or 2Gi"),
            ("containers.0.resources", {"limits": {"cpu": -1}}, "is no quantity, such as 4, 500m or 2Gi"),
            (
                "containers.0.resources",
                {"limits": {"memory": "2GB"}},
                "is no quantity, such as 4, 500m or 2Gi",
            ),
            ("containers.0.name", "Main_1", "must be of lower-case letters, digits and '-'"),
            ("containers.0.imagePullPolicy", "always", "must be Always, IfNotPresent or Never"),
            ("containers.0.env", [{"name": "EPOCHS", "value": 3}], "must be of type string"),
            ("tolerations", [{"key": "gpu", "operator": "Equals"}], "must be Exists or Equal"),
            (
                "tolerations",
                [{"key": "gpu", "effect": "NoShedule"}],
                "must be NoSchedule, PreferNoSchedule or NoExecute",
            ),
            ("dnsPolicy", "Cluster", "must be ClusterFirst, ClusterFirstWithHostNet, Default or None"),
            ("nodeSelector", {"gpu": "a 100"}, "must be of letters, digits"),
            ("terminationGracePeriodSeconds", -1, "must be 0 or more"),
            ("activeDeadlineSeconds", 0, "must be 1 or more"),
        )
    ),
    ("Dataset", "spec.preload.bandwidth", "0", "leave it out for no limit"),
    ("Dataset", "spec.preload.paths", ["../other"], "nothing outside the source can be loaded"),
    ("Dataset", "spec.preload.paths", ["a/../../b"], "nothing outside the source can be loaded"),
    ("Dataset", "spec.preload.paths", ["/train"], "must be relative to the source"),
    ("Dataset", "spec.preload.startTime", "tomorrow", "must be a day that there is"),
    ("Dataset", "spec.placement", {"mode": "Replicate", "copies": 2}, "need nodeCount"),
    ("Dataset", "spec.placement.copies", 0, "must be between 1 and 16"),
    ("Preload", "spec.datasetRef", ..., "spec.datasetRef: Required value"),
    ("Preload", "spec.percent", 150, "must be between 1 and 100"),
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
    ("CacheCluster", "spec.engine", "Fast", 'supported values: "Alluxio", "Native"'),
    (
        "CacheCluster",
        "spec",
        {"engine": "Native", "profile": "Stock"},
        "profile Stock and properties are Alluxio's",
    ),
    (
        "CacheCluster",
        "spec",
        {"engine": "Native", "properties": {"alluxio.debug": "true"}},
        "profile Stock and properties are Alluxio's",
    ),
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
    ("Dataset", "spec.source.uri", "s3://bucket/a\u200bb", "cannot be seen"),
    ("Dataset", "spec.source.uri", "s3://bucket/a\u202eb", "cannot be seen"),
    ("CacheCluster", "spec.sources", [{"name": "a", "caBundle": "x"}], "spec.sources[0].caBundle"),
    (
        "CacheCluster",
        "spec.sources",
        [{"name": "a", "endpoints": ["store:9000"]}],
        "spec.sources[0].endpoints[0]",
    ),
    ("Dataset", "spec.source.include", ["#no pattern"], "spec.source.include[0]"),
    ("Dataset", "spec.source.exclude", [" x"], "spec.source.exclude[0]"),
    ("Dataset", "spec.source.exclude", ["a\nb"], "spec.source.exclude[0]"),
    ("Dataset", "spec.source.exclude", ["*a*a*a*b"], "more than three * between two slashes"),
    ("Dataset", "spec.source.include", ["**/a/**/a/**/a/**/b"], "more than three **"),
    ("Dataset", "spec.source.secretRef.name", "other/keys", "without 'namespace/'"),
    ("Preload", "spec.datasetRef.name", "other/pictures", "without 'namespace/'"),
    ("Dataset", "spec.source.options.endpoint", "store:9000", "must be a URL such as"),
    (
        "Dataset",
        "spec.source.options.endpoint",
        "http://me:secret@store.example",
        "without user, path or query",
    ),
    ("Dataset", "spec.source.options.endpoint", "http://store.example/path", "without user, path or query"),
    ("Dataset", "spec.source.options.endpoint", "http://store.example?x", "without user, path or query"),
    ("Dataset", "spec.source.options.endpoint", "http://store.example:07070", "without user, path or query"),
    ("Dataset", "spec.source.options.endpoint", "http://", "without user, path or query"),
    ("Dataset", "spec.placement.mode", "Everywhere", 'supported values: "Auto", "Partition", "Replicate"'),
    ("Dataset", "spec.eviction.policy", "pin", "must be LRU, LRFU, NextUse, Pin or Timed, in this spelling"),
    ("Dataset", "spec.placement.nodeCount", 0, "must be between 1 and 5000"),
    ("Dataset", "metadata.name", "a.b", "metadata.name must be at most 63"),
    ("TrainingJob", "spec.datasets.0.mountPath", "data", "must be an absolute path in the container"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/a/../b", "must be a plain path"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/etc", "would hide what the system"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/usr/local/bin", "or the image's program has there"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/etc/ssl/certs", "would hide what the system"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/usr/lib/python3", "would hide what the system"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/dev/shm", "would hide what the system"),
    (
        "TrainingJob",
        "spec.replicaSpecs.0.template.spec.hostUsers",
        False,
        "cannot be used together with datasets",
    ),
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
        "is below another's, whose volume is read-only",
    ),
    (
        "TrainingJob",
        "spec.datasets",
        [{"name": "a", "mountPath": "/d"}, {"name": "a", "mountPath": "/e"}],
        "Duplicate value",
    ),
    ("TrainingJob", "spec.datasets.0.readiness.percent", 101, "must be between 0 and 100"),
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
    ("TrainingJob", "spec.elastic", {"minReplicas": 2, "maxReplicas": 4}, "the number of workers must be"),
    ("TrainingJob", "spec.scheduling.mode", "Luck", 'supported values: "Extender", "Affinity"'),
    ("TrainingJob", "spec.runPolicy.cleanPodPolicy", "Some", 'supported values: "Running", "All", "None"'),
    ("TrainingJob", "metadata.name", "t" * 51, "at most 50 lower-case letters"),
    ("TrainingJob", "metadata.name", "1st", "must begin with a letter"),
    ("CacheCluster", "spec.replicas", 0, "must be between 1 and 5000"),
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
    ("Dataset", "spec.source.secretRef.name", "Keys", "no Secret can have this name"),
    ("Dataset", "spec.preload", {"enabled": False, "percent": 50}, "nothing is loaded ahead"),
    ("Dataset", "spec.sharedWith", [{}], "names no namespace"),
    ("Preload", "spec.nodes", ["gpu_1"], "no Node can have this name"),
    ("CacheCluster", "spec.tolerations", [{"operator": "Equal", "value": "x"}], "operator must be Exists"),
    ("CacheCluster", "spec.image", "https://registry/tdcs", "without blanks and without https://"),
    ("CacheCluster", "spec.limits", {"files": 10, "filesPerDataset": 20}, "must not be above files"),
    ("CacheCluster", "spec.worker.resources", {"limits": {"memory": "much"}}, "much is no quantity"),
    (
        "CacheCluster",
        "spec.quotas",
        [
            {
                "name": "a",
                "bytes": 1,
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
            }
        ],
        "In and NotIn need values",
    ),
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
    created_object = installed.create(MAKERS[kind](namespace=namespace))
    spec = created_object["spec"]
    if kind == "Dataset":
        assert spec["cacheClusterRef"] == {"name": "default"}
        assert spec["preload"] == {"enabled": True, "paths": [], "failedFiles": "Count"}
        assert (spec["placement"]["mode"], spec["placement"]["copies"]) == ("Auto", 1)
        assert spec["source"]["checkInterval"] == "5m"
    if kind == "TrainingJob":
        assert spec["datasets"][0]["readiness"] == {"percent": 0}
        assert spec["workers"] == 1
        policy = {"suspend": False, "cleanPodPolicy": "Running", "startTimeoutSeconds": 600}
        assert spec["runPolicy"] == policy
        assert spec["scheduling"] == {"mode": "Extender", "gang": True, "rank": 0}
    if kind == "CacheCluster":
        assert spec["replicas"] == 5000
        assert spec["storage"]["tiers"] == [{"medium": "SSD", "capacity": "10Gi"}]


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
        obj = dataset(namespace=namespace, name=f"d{number}")
        installed.create(edited(obj, "spec.source.checkInterval", duration))
    with pytest.raises(KubeRequestError, match="must be at least 10s"):
        installed.create(edited(dataset(namespace=namespace), "spec.source.checkInterval", "9s"))


SIZES = (
    ("Dataset", "spec.preload.amount", "must be a size above zero"),
    ("Dataset", "spec.preload.bandwidth", "must be above zero"),
    ("CacheCluster", "spec.journal.size", "must be a size above zero"),
)


@pytest.mark.parametrize("size", ["10GB", "-5Gi", "fast", "0", "1e999", "9Ei"])
@pytest.mark.parametrize(("kind", "path", "sentence"), SIZES)
def test_a_size_that_is_none_has_one_error_that_says_what_to_write(
    installed: Kube, shared_namespace: str, kind: str, path: str, sentence: str, size: str
) -> None:
    with pytest.raises(KubeRequestError) as refused:
        installed.create(edited(MAKERS[kind](namespace=shared_namespace), path, size))
    text = str(refused.value)
    assert text.count("Invalid value") == 1, text
    assert f'"{size}" is not taken: must be' in text, text
    assert (sentence if size not in ("1e999", "9Ei") else "must be below 8Ei") in text


def test_what_containers_and_schedules_may_have_is_accepted(installed: Kube, namespace: str) -> None:
    lines = (
        "0 3 * * 1",
        "*/15 0-6,22 1,15 JAN-MAR sun",
        "0 3 L * *",
        "0 3 * * mon#1",
        "59 23 31 12 7",
        " 0 3 ? * 0-6/2 ",
    )
    for number, line in enumerate(lines):
        obj = dataset(namespace=namespace, name=f"cron-{number}")
        installed.create(edited(obj, "spec.eviction", {"policy": "Timed", "schedule": line}))
    for number, resources in enumerate(
        (
            {"limits": {"nvidia.com/gpu": 1}},
            {"limits": {"nvidia.com/gpu": "8", "cpu": "1.5"}},
            {"limits": None},
        )
    ):
        job = MAKERS["TrainingJob"](namespace=namespace, name=f"job-{number}")
        path = "spec.replicaSpecs.0.template.spec.containers.0"
        job = edited(job, f"{path}.resources", resources)
        job = edited(job, f"{path}.env", [{"name": "A", "value": None}, {"name": "B", "value": ""}])
        job = edited(job, "spec.datasets.0.mountPath", f"/opt/ml/Daten und \u00dcbriges/{number}")
        installed.create(job)
