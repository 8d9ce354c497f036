"""Training over slow links: a planned pipeline whose pod is killed, data parallel and parameter servers next to it.

The links between the nodes are shaped to 100 Mbit/s. The tests take some six minutes, so they are deep ones, and
write what they measured to bench/training/results/cluster.jsonl, for the page of results.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.training import records

from e2e.support.jobs import logs_of, succeeded
from tdcs_local import demo
from tdcs_local.kind import cluster, images
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT, EXAMPLES
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

pytestmark = pytest.mark.deep(
    "the same jobs without slow links: e2e/training/test_training.py, tests/training"
)
MBIT = 100
TEMPLATE = EXAMPLES / "trainingjob-pipeline.yaml"
CLAIM = "checkpoints"
JOBS = ("pipeline-calm", "pipeline-killed", "data-parallel", "mnist-torch-ps", "links")
INDEX = "batch.kubernetes.io/job-completion-index"
STEPS = 38
"""Mini-batches of an epoch, as the template says."""


@dataclass(frozen=True)
class Loaded:
    """The Dataset on its nodes, and what the store had sent before it was loaded."""

    held: dict[str, int]
    sent_before: int


@dataclass(frozen=True)
class Trained:
    """An undisturbed pipeline: the job's status, and the lines of its workers by rank."""

    status: dict[str, Any]
    lines: list[list[dict[str, Any]]]

    @property
    def images_per_second(self) -> float:
        """The median of its epochs."""
        speeds = sorted(line["images_per_second"] for line in self.lines[0] if "epoch" in line)
        return float(speeds[len(speeds) // 2])


@pytest.fixture(scope="module", autouse=True)
def training_image_on_its_way() -> None:
    """These tests do without the image of TensorFlow."""


@pytest.fixture(scope="module")
def figures() -> Iterator[list[dict[str, Any]]]:
    """A row for each job, in one order of columns; kept when the tests have ended."""
    rows: list[dict[str, Any]] = []
    yield rows
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        records.keep("cluster", [{column: row.get(column, "") for column in columns} for row in rows])


@pytest.fixture(scope="module")
def image(kubectl: Kubectl, reporter: Reporter) -> str:
    """The image with PyTorch is on the nodes."""
    return f"tdcs/train-pytorch:{images.ensure(['train-pytorch'], reporter=reporter)['train-pytorch']}"


@pytest.fixture(scope="module")
def loaded(tdcs: None, store_filled: None, image: str, kubectl: Kubectl, reporter: Reporter) -> Loaded:
    """The example Dataset, loaded by this module: an earlier one's jobs and bytes are dropped first."""
    demo.forget(kubectl=kubectl)
    sent = operations.payload_bytes_sent(bucket=demo.DATASET)
    return Loaded(demo.load_dataset(reporter=reporter, kubectl=kubectl).held, sent)


@pytest.fixture(scope="module")
def slow_links(kubectl: Kubectl, workers: list[str], loaded: Loaded) -> Iterator[None]:
    """Every node sends 100 Mbit/s at most, to other nodes as to anybody else."""

    def traffic(node: str, *words: str) -> None:
        process = subprocess.run(
            ["docker", "inspect", "--format", "{{.State.Pid}}", node],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        inside = ["nsenter", f"--net=/proc/{process}/ns/net", "tc", "qdisc", *words]
        subprocess.run(inside, capture_output=True, text=True, check=True)

    bucket = ("tbf", "rate", f"{MBIT}mbit", "burst", "256kb", "limit", "4mb")
    for node in workers:
        traffic(node, "replace", "dev", "eth0", "root", *bucket)
    yield
    for node in workers:
        traffic(node, "delete", "dev", "eth0", "root")


@pytest.fixture(scope="module")
def checkpoints(kubectl: Kubectl, workers: list[str], loaded: Loaded) -> Iterator[Path]:
    """The claim `checkpoints`, on a folder that all nodes see, as they would see one of an NFS server."""
    folder = cluster.TRANSFER / f"checkpoints-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    for node in workers:
        mount = ["docker", "exec", node, "mount", "-o", "remount,bind,rw", cluster.NODE_TRANSFER]
        subprocess.run(mount, capture_output=True, check=True)
    volume = f"e2e-{folder.name}"
    shared: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **shared,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": f"{cluster.NODE_TRANSFER}/{folder.name}"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": demo.NAMESPACE},
            "spec": {**shared, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    yield folder
    for name in JOBS:
        kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    kubectl.delete("persistentvolumeclaim", CLAIM, namespace=demo.NAMESPACE)
    kubectl.delete("persistentvolume", volume)
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    for node in workers:
        mount = ["docker", "exec", node, "mount", "-o", "remount,bind,ro", cluster.NODE_TRANSFER]
        subprocess.run(mount, capture_output=True, check=True)


@pytest.fixture(scope="module")
def bandwidth(checkpoints: Path, slow_links: None, image: str, kubectl: Kubectl) -> float:
    """Bytes a second of the slowest link, as `tdcs-train link` in three pods measures it."""
    name = JOBS[4]
    (template,) = yaml.safe_load_all(TEMPLATE.read_text())
    job = named(template, name, image)
    del job["spec"]["datasets"]
    pod = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    (container,) = pod["containers"]
    container.update(command=["tdcs-train"], args=["link", "--seconds=2", "--json"])
    for entries in (container["volumeMounts"], pod["volumes"]):
        entries[:] = [entry for entry in entries if entry["name"] != CLAIM]
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    kubectl.apply(job)
    succeeded(kubectl, name)
    (measurement,) = [json.loads(log) for log in logs_of(kubectl, name) if log.startswith("{")]
    print(json.dumps(measurement))
    assert len(measurement["pairs"]) == 6
    slowest: float = measurement["slowestBytesPerSecond"]
    assert 0.8 * MBIT <= slowest * 8e-6 <= 1.1 * MBIT
    return slowest


@pytest.fixture(scope="module")
def planned(bandwidth: float, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The TrainingJob that `tdcs-train plan --job` writes for the measured link and the profile of the wide network."""
    scratch = tmp_path_factory.mktemp("plan")
    local = {**os.environ, "PYTHONPATH": f"{CHECKOUT}/deploy/local"}
    root = [sys.executable, "-m", "tdcs_local", "torch", f"--results={scratch}", "--"]
    profile = "python3 -m tdcs_train.cli profile deploy/examples/train_images_torch.py:wide"
    words = [*root, *profile.split(), "--batch=64", "--steps=10", "--threads=1", "--optimizer=sgd"]
    words += ["-o", "/results/graph.txt"]
    subprocess.run(words, cwd=CHECKOUT, env=local, check=True, capture_output=True)
    plan = f"plan --profile {scratch}/graph.txt --workers 3 --bandwidth {bandwidth}"
    plan += f" --job {TEMPLATE} -o {scratch}/job.yaml"
    result = subprocess.run(
        [sys.executable, "-m", "tdcs_train.cli", *plan.split()], check=True, capture_output=True, text=True
    )
    print(result.stdout)
    job: dict[str, Any] = yaml.safe_load((scratch / "job.yaml").read_text())
    assert job["spec"]["datasets"][0]["readers"] == "0-1"
    return job


def named(job: dict[str, Any], name: str, image: str) -> dict[str, Any]:
    """The job under a name of its own in the demo's namespace, with this checkout's image and its own checkpoints."""
    text = json.dumps(job).replace("tdcs/train-pytorch:dev", image)
    text = text.replace("--checkpoints=/checkpoints", f"--checkpoints=/checkpoints/{name}")
    obj: dict[str, Any] = json.loads(text)
    obj["metadata"] = {"name": name, "namespace": demo.NAMESPACE}
    return obj


def lines_of(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def finished(kubectl: Kubectl, name: str) -> list[list[dict[str, Any]]]:
    """The lines of each worker that came to its end, by rank; a pod before it may have failed."""
    logs = [lines_of(log) for log in logs_of(kubectl, name)]
    ended = {
        lines[-1]["worker"]: lines
        for lines in logs
        if lines and lines[-1].get("done") and "worker" in lines[-1]
    }
    return [ended[rank] for rank in sorted(ended)]


@pytest.fixture(scope="module")
def calm(
    planned: dict[str, Any],
    checkpoints: Path,
    slow_links: None,
    image: str,
    kubectl: Kubectl,
) -> Trained:
    """The pipeline, undisturbed."""
    kubectl.delete("trainingjobs.tdcs.io", JOBS[0], namespace=demo.NAMESPACE)
    kubectl.apply(named(planned, JOBS[0], image))
    status = succeeded(kubectl, JOBS[0], seconds=300)
    lines = finished(kubectl, JOBS[0])
    for worker_lines in lines:
        print(json.dumps(worker_lines))
    return Trained(status, lines)


def test_the_planned_pipeline_reads_where_its_data_is_and_its_loss_falls(
    calm: Trained, loaded: Loaded, figures: list[dict[str, Any]]
) -> None:
    total = operations.manifest(demo.DATASET)["totalBytes"]
    sent = operations.payload_bytes_sent(bucket=demo.DATASET) - loaded.sent_before
    assert total <= sent < 1.1 * total
    nodes = {pod["pod"].rsplit("-", 2)[-2]: pod["node"] for pod in calm.status["placement"]}
    assert len(loaded.held) == 2
    assert {nodes["0"], nodes["1"]} == set(loaded.held)
    assert nodes["2"] not in loaded.held
    assert calm.status["locality"] == 1.0
    assert [worker_lines[0]["stage"] for worker_lines in calm.lines] == [0, 0, 1]
    for worker_lines in calm.lines:
        epochs = [line for line in worker_lines if "epoch" in line]
        assert len(epochs) == 8
        assert {line["bottleneck"] for line in epochs} <= {"stage 0", "stage 1"}
        assert worker_lines[-1]["last_loss"] < 0.5 * worker_lines[-1]["first_loss"]
    figures.append(
        {
            "job": "pipeline 2-1",
            "images a second": calm.images_per_second,
            "first loss": calm.lines[0][-1]["first_loss"],
            "last loss": calm.lines[0][-1]["last_loss"],
            "epochs": 8,
            "locality": calm.status["locality"],
            "source sent over dataset": round(sent / total, 3),
            "bottleneck": next(line["bottleneck"] for line in reversed(calm.lines[0]) if "epoch" in line),
        }
    )


def test_a_pipeline_of_which_a_pod_is_killed_goes_on_and_ends_with_the_same_loss(
    calm: Trained,
    planned: dict[str, Any],
    checkpoints: Path,
    slow_links: None,
    image: str,
    kubectl: Kubectl,
    figures: list[dict[str, Any]],
) -> None:
    name = JOBS[1]
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    kubectl.apply(named(planned, name, image))
    pods = f"tdcs.io/training-job={name}"

    def trained() -> str | None:
        steps = [int(path.stem.rpartition("-")[2]) for path in (checkpoints / name).glob("stage-1.step-*.pt")]
        return None if max(steps, default=0) >= 2 * STEPS else f"checkpoints of the last stage: {steps}"

    kubectl.wait(trained, what="the pipeline wrote no checkpoint of its second epoch", seconds=240)
    (victim,) = (
        pod["metadata"]["name"]
        for pod in kubectl.list("pods", namespace=demo.NAMESPACE, selector=pods)
        if pod["metadata"]["annotations"][INDEX] == "2"
    )
    kubectl("delete", "pod", victim, "-n", demo.NAMESPACE, "--grace-period=0", "--force")
    succeeded(kubectl, name, seconds=300)
    ended = finished(kubectl, name)
    for worker_lines in ended:
        print(json.dumps(worker_lines))
    resumed = {worker_lines[0]["resumed_after"] for worker_lines in ended}
    assert len(resumed) == 1
    assert 2 <= min(resumed) < 8, "the job had ended, or began again"
    assert len(ended) == 3
    assert [worker_lines[-1]["last_loss"] for worker_lines in ended] == [
        worker_lines[-1]["last_loss"] for worker_lines in calm.lines
    ]
    figures.append(
        {
            "job": "pipeline 2-1, a pod of stage 1 killed",
            "last loss": ended[0][-1]["last_loss"],
            "epochs": 8,
            "went on after epoch": min(resumed),
        }
    )


def test_at_this_link_data_parallel_trains_at_half_the_speed_or_less(
    calm: Trained,
    planned: dict[str, Any],
    slow_links: None,
    image: str,
    kubectl: Kubectl,
    figures: list[dict[str, Any]],
) -> None:
    name = JOBS[2]
    job = named(planned, name, image)
    (container,) = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    del container["env"], job["spec"]["datasets"][0]["readers"]
    left_out = ("--checkpoints", "--steps", "--epochs")
    container["args"] = [argument for argument in container["args"] if not argument.startswith(left_out)] + [
        "--epochs=1"
    ]
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    kubectl.apply(job)
    succeeded(kubectl, name, seconds=300)
    ended = finished(kubectl, name)
    assert len(ended) == 3
    speed = next(line["images_per_second"] for line in ended[0] if "epoch" in line)
    ratio = calm.images_per_second / speed
    print(json.dumps({"pipeline": calm.images_per_second, "data_parallel": speed, "ratio": ratio}))
    figures.append(
        {"job": "data parallel", "images a second": speed, "epochs": 1, "pipeline over it": round(ratio, 2)}
    )
    assert ratio >= 2


def test_a_job_with_parameter_servers_sends_by_the_order_of_its_plan(
    loaded: Loaded,
    checkpoints: Path,
    slow_links: None,
    image: str,
    kubectl: Kubectl,
    figures: list[dict[str, Any]],
) -> None:
    """A dense layer of 512 outputs, of which the gradient takes some time on the link, so that others wait for it."""
    name = JOBS[3]
    (order,) = yaml.safe_load_all((EXAMPLES / "order-digits.yaml").read_text())
    (job,) = yaml.safe_load_all((EXAMPLES / "trainingjob-parameter-server-torch.yaml").read_text())
    job = named(job, name, image)
    for role in job["spec"]["replicaSpecs"]:
        for container in role["template"]["spec"]["containers"]:
            container["args"].append("--hidden=512")
    kubectl.apply({**order, "metadata": {**order["metadata"], "namespace": demo.NAMESPACE}})
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    kubectl.apply(job)
    server_pods = f"tdcs.io/training-job={name},tdcs.io/role=ps"

    def server_runs() -> str | None:
        pods = kubectl.list("pods", namespace=demo.NAMESPACE, selector=server_pods)
        phases = [pod["status"].get("phase") for pod in pods]
        return None if phases in (["Running"], ["Succeeded"]) else f"the server's pods: {phases}"

    kubectl.wait(server_runs, what=f"the server of {name} did not start", seconds=120)
    follow = ("logs", "--follow", "--tail=-1", f"--selector={server_pods}", "-n", demo.NAMESPACE)
    with ThreadPoolExecutor(max_workers=1) as alongside:
        # Its pod may be removed as soon as the workers have ended.
        server_log = alongside.submit(kubectl, *follow, timeout=400)
        succeeded(kubectl, name, seconds=300)
        (server,) = [line for line in lines_of(server_log.result()) if line.get("done")]
    workers = [worker_lines[-1] for worker_lines in finished(kubectl, name)]
    print(json.dumps([server, *workers]))
    assert len(workers) == 2
    for line in workers:
        assert line["last_loss"] < line["first_loss"]
    # The trace: gradients leave a worker, and parameters the server, never past something more urgent that waited.
    assert [line["order_kept"] for line in (server, *workers)] == [1.0] * 3
    overtook = [line["overtook"] for line in (server, *workers)]
    assert sum(overtook) > 0, "the order changed nothing here"
    figures.append(
        {
            "job": "parameter server, two workers, planned order",
            "first loss": workers[0]["first_loss"],
            "last loss": workers[0]["last_loss"],
            "epochs": 2,
            "order kept": min(line["order_kept"] for line in (server, *workers)),
            "tensors that overtook (server, workers)": ", ".join(map(str, overtook)),
        }
    )
