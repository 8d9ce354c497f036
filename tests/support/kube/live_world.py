"""A cluster to look at: nodes, caches, datasets and jobs in every state, of any size."""

from __future__ import annotations

import random
from typing import Any

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
GB = 10**9
NAMES = ("imagenet", "openwebtext", "laion-part", "speech", "kitti", "protein-folds", "digits", "street-view")
TEAMS = ("vision", "language", "robotics")


CAPACITY = 260 * GB


def cluster(
    *, nodes: int, jobs: int, datasets: int = 8, seed: int = 1, troubles: bool = False
) -> dict[str, list[Object]]:
    """Objects by plural. `troubles`: among them a failed Dataset, a failed job, one that is being deleted, long names,
    and a node of the control plane, which is empty."""
    draw = random.Random(seed)
    node_names = [f"gpu-{number:03d}" for number in range(nodes)]
    sets = [_dataset(number, node_names, draw) for number in range(datasets)]
    made_jobs: list[Object] = []
    pods: list[Object] = []
    free = dict.fromkeys(node_names, 8)
    for number in range(jobs):
        dataset = sets[number % len(sets)]
        state = draw.choices(("Running", "Queued", "Succeeded", "Starting"), (6, 2, 1, 1))[0]
        workers = draw.choice((1, 2, 2, 4))
        holders = [node["name"] for node in dataset["status"]["copies"][0]["nodes"]]
        places = [
            node
            for node in draw.sample(holders, len(holders)) + draw.sample(node_names, min(len(node_names), 8))
            if free[node] >= 1
        ][:workers]
        if len(places) < workers and state in {"Running", "Starting"}:
            state = "Queued"
        job = _job(number, dataset, state=state, workers=workers, places=places)
        made_jobs.append(job)
        if state in {"Running", "Starting"}:
            for index, node in enumerate(places):
                free[node] -= 1
                pods.append(_pod(job, index, node))
    used_bytes: dict[str, int] = dict.fromkeys(node_names, 0)
    for dataset_object in sets:
        for node in dataset_object["status"]["copies"][0]["nodes"]:
            used_bytes[node["name"]] += node["bytes"]
    # No worker holds more than it has room for.
    capacity = max(CAPACITY, max(used_bytes.values(), default=0) * 5 // 4)
    workers_of = [
        {"node": name, "state": "Ready", "capacityBytes": capacity, "usedBytes": used_bytes[name]}
        for name in node_names
    ]
    cache = {
        "metadata": {"name": "default", "namespace": "tdcs-system"},
        "spec": {},
        "status": {
            "readyReplicas": nodes,
            "desiredReplicas": nodes,
            "capacityBytes": capacity * nodes,
            "usedBytes": sum(used_bytes.values()),
            "workers": workers_of,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    made_nodes = [_node(name, ready=nodes < 10 or number % 97 != 5) for number, name in enumerate(node_names)]
    objects = {
        "nodes": made_nodes,
        "pods": pods,
        "cacheclusters": [cache],
        "datasets": sets,
        "preloads": [],
        "trainingjobs": made_jobs,
    }
    if troubles:
        _trouble(objects)
    for version, obj in enumerate((obj for listed in objects.values() for obj in listed), start=1):
        obj["metadata"]["resourceVersion"] = str(version)
    return objects


def _trouble(found: dict[str, list[Object]]) -> None:
    failed, jobs = found["datasets"][-1], found["trainingjobs"]
    why = (
        f"s3://bucket/{failed['metadata']['name']} refuses the keys of Secret keys: Access Denied (403). Put keys into "
        "it that may list and read the bucket"
    )
    ready = {"type": "Ready", "status": "False", "reason": "SourceRefused", "message": why}
    nothing = dict.fromkeys(
        ("totalBytes", "totalFiles", "cachedBytes", "wantedBytes", "loadedBytes", "bytesPerSecond"), 0
    )
    failure = {
        "state": "Failed",
        "reason": "SourceRefused",
        "message": why,
        "conditions": [ready],
        "copies": [],
    }
    failed["status"] |= {**nothing, **failure}
    name = "a-training-job-with-a-name-as-long-as-names-of-jobs-may-be-0123"
    jobs[0]["metadata"]["name"] = name
    for pod in found["pods"]:
        if pod["metadata"]["name"].startswith("resnet50-0-worker"):
            pod["metadata"]["labels"]["tdcs.io/training-job"] = name
    text = f"worker 1 (pod {name}-worker-1-0 on node gpu-001) failed with exit code 137: out of memory"
    jobs[0]["status"] |= {"state": "Failed", "reason": "JobFailed", "message": text}
    going = next((job for job in jobs[1:] if job["status"]["state"] == "Running"), jobs[-1])
    going["metadata"]["deletionTimestamp"] = "2026-05-01T12:00:00Z"
    master = _node("a-control-plane-0.europe-west4-b.c.example-project.internal", ready=True)
    master["status"]["allocatable"][GPU] = "0"
    found["nodes"].insert(0, master)


def _node(name: str, *, ready: bool) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "allocatable": {GPU: "8", "cpu": "96"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            "images": [{"names": ["registry.example/train:1"], "sizeBytes": GB}] * 20,
        },
    }


def _dataset(number: int, nodes: list[str], draw: random.Random) -> Object:
    name = NAMES[number % len(NAMES)] + (f"-{number // len(NAMES)}" if number >= len(NAMES) else "")
    total = draw.choice((140, 40, 320, 90)) * GB
    holders = draw.sample(nodes, min(len(nodes), draw.choice((3, 5, 8)) * max(1, len(nodes) // 40)))
    part = draw.choice((1.0, 1.0, 0.63)) if number else 0.41
    held = [{"name": node, "bytes": int(total * part / len(holders) * 2)} for node in sorted(holders)]
    loading = part < 1
    return {
        "metadata": {"name": name, "namespace": TEAMS[number % 3], "uid": f"d{number}"},
        "spec": {"source": {"uri": f"s3://bucket/{name}"}},
        "status": {
            "state": "Loading" if loading else "Ready",
            "totalBytes": total,
            "totalFiles": 1_281_167,
            "cachedBytes": int(total * part),
            "wantedBytes": 2 * total,
            "loadedBytes": int(2 * total * part),
            "bytesPerSecond": 1_200_000_000 if loading else 0,
            "copiedBytesPerSecond": 3_400_000_000 if loading else 0,
            "activeJobs": draw.randint(0, 4),
            "waitingJobs": draw.randint(0, 2),
            "copies": [{"id": "0", "nodes": held}],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False" if loading else "True",
                    "reason": "Loading",
                    "message": "it is being loaded; jobs can read it meanwhile",
                }
            ],
        },
    }


def _job(number: int, dataset: Object, *, state: str, workers: int, places: list[str]) -> Object:
    namespace = dataset["metadata"]["namespace"]
    running = state in {"Running", "Starting"}
    status: Object = {
        "state": state,
        "replicaStatuses": [{"name": "Worker", "ready": workers if state == "Running" else 0}],
        "placement": [],
    }
    if running:
        status["localityPercent"] = "100%" if number % 5 else "82%"
    if state == "Queued":
        status["reason"] = "NoRoom"
        status["message"] = f"its pods need {workers} nodes with 4 GPUs each; 2 have room"
    return {
        "metadata": {
            "name": f"{('resnet50', 'gpt-small', 'detector', 'wav2vec')[number % 4]}-{number}",
            "namespace": namespace,
            "creationTimestamp": f"2026-05-01T10:{number % 60:02d}:00Z",
            "uid": f"j{number}",
        },
        "spec": {
            "workers": workers,
            "replicaSpecs": [{"name": "Worker"}],
            "datasets": [{"name": dataset["metadata"]["name"], "mountPath": "/data"}],
        },
        "status": {**status, "nodes": places},
    }


def _pod(job: Object, index: int, node: str) -> Object:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    claim = job["spec"]["datasets"][0]["name"]
    return {
        "metadata": {
            "name": f"{name}-worker-{index}",
            "namespace": namespace,
            "labels": {"tdcs.io/training-job": name, "tdcs.io/role": "worker"},
            "creationTimestamp": "2026-05-01T10:00:00Z",
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "tdcs-scheduler",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/train:1",
                    "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)],
                    "resources": {"limits": {GPU: "1"}},
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
        "status": {"phase": "Running"},
    }
