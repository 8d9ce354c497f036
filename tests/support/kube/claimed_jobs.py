"""Pods of every kind of job that does nothing for TDCS but mount a claim: bare, of a Job, a JobSet, a TrainJob."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.kube import Object

KIND = "tests.tdcs.io/kind"
"""Label of a pod: the kind of what it was made for."""

PODS: Mapping[str, int] = {"Pod": 1, "Job": 3, "JobSet": 4, "TrainJob": 2}
"""How many of each there are."""

TRAINER_API = "trainer.kubeflow.org/v1alpha1"


def jobs_with_claim(spec: Object, *, namespace: str) -> list[Object]:
    """One object of each kind, and the runtime of the TrainJob, named by their kinds.

    Args:
        spec: of their pods; its one container is named `node` and mounts the claim.
        namespace: of all.
    """
    once = {**spec, "restartPolicy": "Never"}

    def metadata(kind: str, **more: object) -> Object:
        return {"name": kind.lower(), "namespace": namespace, **more}

    def job(kind: str, *, pods: int) -> Object:
        template = {"metadata": {"labels": {KIND: kind}}, "spec": once}
        return {"parallelism": pods, "completions": pods, "template": template}

    half = {"spec": job("JobSet", pods=PODS["JobSet"] // 2)}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata("Pod", labels={KIND: "Pod"}), "spec": once},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata("Job"),
            "spec": job("Job", pods=PODS["Job"]),
        },
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": metadata("JobSet"),
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": half}]},
        },
        _runtime(spec, metadata=metadata("TrainJob")),
        _train_job(spec, metadata=metadata("TrainJob")),
    ]


def _runtime(spec: Object, *, metadata: Object) -> Object:
    """A runtime that knows nothing of the claim."""
    plain = {key: value for key, value in spec.items() if key != "volumes"}
    container = {key: value for key, value in spec["containers"][0].items() if key != "volumeMounts"}
    pod = {"metadata": {"labels": {KIND: "TrainJob"}}, "spec": {**plain, "containers": [container]}}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    replicated = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": pod}}}
    return {
        "apiVersion": TRAINER_API,
        "kind": "TrainingRuntime",
        "metadata": {**metadata, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [replicated]}},
        },
    }


def _train_job(spec: Object, *, metadata: Object) -> Object:
    """A TrainJob whose patch of the runtime mounts the claim."""
    container = spec["containers"][0]
    patched = {
        "volumes": spec["volumes"],
        "containers": [{"name": container["name"], "volumeMounts": container["volumeMounts"]}],
    }
    replicated = {"name": "node", "template": {"spec": {"template": {"spec": patched}}}}
    return {
        "apiVersion": TRAINER_API,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": metadata["name"]},
            "trainer": {"numNodes": PODS["TrainJob"], "resourcesPerNode": container.get("resources", {})},
            "runtimePatches": [
                {
                    "manager": "tests.tdcs.io/data",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
                }
            ],
        },
    }
