"""`make demo`: from nothing to training jobs that run where their data is, and how fast images are read with TDCS.

Everything a user would apply is applied as it stands in ``deploy/examples``; only the second run's name differs.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, images, release
from tdcs_local.kind.kubectl import Kubectl, Object, condition, load
from tdcs_local.paths import EXAMPLES, KUBECONFIG
from tdcs_local.progress import Reporter, duration, print_whole
from tdcs_local.store import datasets, operations, reading

NAMESPACE = "tdcs-demo"
DATASET = "mnist"
LINK = "200mbit"
"""What a store in another data centre may give to a job."""
SYSTEM_IMAGES = (*release.IMAGES, "store")
TRAINING_IMAGE = "train-tensorflow"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A TrainingJob of ``deploy/examples`` as the demo runs it, and the role that logs the speed."""

    name: str
    file: str
    teller: str
    needs: tuple[str, ...] = ()
    """Files that are applied as they stand before the job."""


FIRST = Example(name="mnist-first", file="trainingjob.yaml", teller="worker")
SECOND = Example(name="mnist-second", file="trainingjob.yaml", teller="worker")
PARAMETER_SERVER = Example(
    name="mnist-ps",
    file="trainingjob-parameter-server.yaml",
    teller="chief",
    needs=("order-digits.yaml",),
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of a training job did.

    ``source_bytes`` counts the object bytes that left the store while it ran; ``images_per_second`` is over all
    workers, by epoch; ``held`` maps a node to the dataset's bytes on it before the job started.
    """

    name: str
    held: dict[str, int]
    pods: list[dict[str, Any]]
    locality: float
    local_share: float
    images_per_second: list[float]
    source_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Load:
    """What it took to have the dataset on its nodes; nothing, when it was there already."""

    held: dict[str, int]
    source_bytes: int
    seconds: float


def run(*, reporter: Reporter, began: float) -> None:
    """Prepare what is missing, train on a cold dataset, on a warm one, with a parameter server; print the table. Then
    read a larger bucket directly and with TDCS, and print what that gains.

    Args:
        reporter: writes the steps.
        began: when the command did, before it made the cluster, by the monotonic clock.
    """
    cluster_seconds = time.monotonic() - began
    kubectl = Kubectl()
    tags = images.ensure(SYSTEM_IMAGES, reporter=reporter)
    with ThreadPoolExecutor(max_workers=1) as alongside:
        # by far the largest image, and the last one needed: it travels while the rest starts
        training = alongside.submit(images.ensure, [TRAINING_IMAGE], reporter=reporter)
        try:
            prepare_store(reporter=reporter)
            release.install(reporter=reporter, kubectl=kubectl, tags=tags)
        except LocalError:
            if not training.done():
                reporter.say("the image of the training jobs is still being built; this command ends with it")
            raise
        training.result()
    runs = [cold_run(reporter=reporter, kubectl=kubectl)]
    wait_loaded(reporter=reporter, kubectl=kubectl)
    runs += [
        train(reporter=reporter, kubectl=kubectl, example=example) for example in (SECOND, PARAMETER_SERVER)
    ]
    image = f"tdcs/tdcs:{tags['tdcs']}"
    compared = reading.compare(namespace=NAMESPACE, image=image, reporter=reporter, kubectl=kubectl)
    show(runs)
    print(explanation(runs[0], size=total_bytes(kubectl)))
    hints()
    print(reading.summary(compared), flush=True)
    reporter.say(finished(seconds=time.monotonic() - began, cluster_seconds=cluster_seconds))


def introduce(*, reporter: Reporter) -> None:
    """What will be shown: printed before anything is done."""
    reporter.say(
        "What you will see: three TensorFlow jobs on one dataset of an object store behind a link of 200 Mbit/s. The\n"
        "first reads while the data is loaded onto two nodes, the others run on those nodes. Then two pods read a\n"
        f"bucket of {reading.IMAGES.files:,} images of {reading.IMAGES.size} directly, and the same bucket with TDCS: "
        "the last lines say what that gains."
    )


def prepare_store(*, reporter: Reporter) -> None:
    """An object store behind a slow link, a bucket of it filled with real images."""
    operations.up(reporter=reporter)
    operations.fill(operations.IMAGES, bucket=DATASET, reporter=reporter)
    operations.set_link(egress=LINK, ingress="unlimited", reporter=reporter)


def forget(*, kubectl: Kubectl) -> None:
    """Delete the demo's jobs and its Dataset, with what is cached of it."""
    for job in kubectl.list("trainingjobs.tdcs.io", namespace=NAMESPACE):
        kubectl.delete("trainingjobs.tdcs.io", job["metadata"]["name"], namespace=NAMESPACE)
    kubectl.delete("datasets.tdcs.io", DATASET, namespace=NAMESPACE)
    reading.forget(namespace=NAMESPACE, kubectl=kubectl)


def cold_run(
    *, reporter: Reporter, kubectl: Kubectl, observe: Callable[[Object], None] = lambda _: None
) -> Run:
    """Apply the Dataset and the first job at once: the job reads while the dataset is being loaded.

    ``observe`` is called with the Dataset as it is at each look, for whoever wants to follow the progress.
    """
    forget(kubectl=kubectl)
    sent = operations.payload_bytes_sent(bucket=DATASET)
    apply_dataset(reporter=reporter, kubectl=kubectl)
    run = train(reporter=reporter, kubectl=kubectl, example=FIRST, observe=observe)
    # On a busy machine the load has begun before the job is there.
    return replace(run, source_bytes=operations.payload_bytes_sent(bucket=DATASET) - sent)


def apply_dataset(*, reporter: Reporter, kubectl: Kubectl) -> None:
    """The demo's namespace, the store's keys in it, and the example Dataset."""
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}}
    )
    datasets.grant_access(kubectl, namespace=NAMESPACE, reporter=reporter)
    kubectl.apply(*(_in_demo(thing) for thing in load(EXAMPLES / "dataset.yaml")))


def load_dataset(*, reporter: Reporter, kubectl: Kubectl) -> Load:
    """Apply the example Dataset and wait until its bytes are on the nodes that the placement chose."""
    sent = operations.payload_bytes_sent(bucket=DATASET)
    begin = time.monotonic()
    apply_dataset(reporter=reporter, kubectl=kubectl)
    held = wait_loaded(reporter=reporter, kubectl=kubectl)
    return Load(
        held=held,
        source_bytes=operations.payload_bytes_sent(bucket=DATASET) - sent,
        seconds=time.monotonic() - begin,
    )


def wait_loaded(
    *, reporter: Reporter, kubectl: Kubectl, observe: Callable[[Object], None] = lambda _: None
) -> dict[str, int]:
    """Wait until the example Dataset is loaded whole; its bytes by node."""

    def look() -> str | None:
        dataset = kubectl.get("datasets.tdcs.io", DATASET, namespace=NAMESPACE)
        observe(dataset or {})
        return _loading(dataset)

    with reporter.step(f"Dataset {DATASET} loaded") as step:
        kubectl.wait(
            look,
            what=f"Dataset {NAMESPACE}/{DATASET} was not loaded",
            seconds=600,
            step=step,
            explain=lambda: kubectl("describe", "datasets.tdcs.io", DATASET, "-n", NAMESPACE),
        )
        held = node_bytes(kubectl)
        step.result = ", ".join(f"{node} {size:,} B" for node, size in sorted(held.items()))
    return held


def train(
    *,
    reporter: Reporter,
    kubectl: Kubectl,
    example: Example,
    seconds: float = 900,
    observe: Callable[[Object], None] = lambda _: None,
) -> Run:
    """Run an example TrainingJob, from a clean start to its end, and measure."""
    name = example.name

    def look() -> str | None:
        observe(kubectl.get("datasets.tdcs.io", DATASET, namespace=NAMESPACE) or {})
        return _training(kubectl.get("trainingjobs.tdcs.io", name, namespace=NAMESPACE))

    kubectl.delete("trainingjobs.tdcs.io", name, namespace=NAMESPACE)
    held = node_bytes(kubectl)
    sent = operations.payload_bytes_sent(bucket=DATASET)
    begin = time.monotonic()
    for file in example.needs:
        kubectl.apply(*(_in_demo(thing) for thing in load(EXAMPLES / file)))
    for thing in load(EXAMPLES / example.file):
        thing["metadata"]["name"] = name
        kubectl.apply(_in_demo(thing))
    with reporter.step(f"TrainingJob {name}") as step:
        kubectl.wait(
            look,
            what=f"TrainingJob {NAMESPACE}/{name} has not succeeded yet",
            seconds=seconds,
            step=step,
            explain=lambda: kubectl("describe", "trainingjobs.tdcs.io", name, "-n", NAMESPACE),
        )
        took = time.monotonic() - begin
        status = (kubectl.get("trainingjobs.tdcs.io", name, namespace=NAMESPACE) or {})["status"]
        step.result = "Succeeded"
    return Run(
        name=name,
        held=held,
        pods=status["placement"],
        locality=status.get("locality", 0.0),
        local_share=status.get("localShare", 0.0),
        images_per_second=images_per_second(
            kubectl("logs", "-n", NAMESPACE, f"job/{name}-{example.teller}", "--tail=-1")
        ),
        source_bytes=operations.payload_bytes_sent(bucket=DATASET) - sent,
        seconds=took,
    )


def node_bytes(kubectl: Kubectl) -> dict[str, int]:
    """The demo Dataset's bytes by node, from its status."""
    dataset = kubectl.get("datasets.tdcs.io", DATASET, namespace=NAMESPACE) or {}
    held: dict[str, int] = {}
    for copy in dataset.get("status", {}).get("copies", []):
        for node in copy["nodes"]:
            held[node["name"]] = held.get(node["name"], 0) + int(node["bytes"])
    return {node: size for node, size in held.items() if size}


def total_bytes(kubectl: Kubectl) -> int:
    """The size of the demo Dataset, from its status."""
    dataset = kubectl.get("datasets.tdcs.io", DATASET, namespace=NAMESPACE) or {}
    return int(dataset.get("status", {}).get("totalBytes", 0))


def images_per_second(log: str) -> list[float]:
    """Images per second over all workers in each epoch, from the JSON lines that the training prints."""
    epochs = [line for line in map(_json_line, log.splitlines()) if "images_per_second" in line]
    if not epochs:
        raise LocalError(what="the training job printed no images_per_second", why=log[-1500:])
    return [float(line["images_per_second"]) for line in epochs]


def show(runs: Sequence[Run]) -> None:
    """Print what each run found and did. Nodes go by their names without the cluster's, which can be long."""
    prefix = f"{cluster.name()}-"
    print(
        f"Three jobs on one dataset (the names of nodes begin with {prefix}, which is left out)", flush=True
    )
    table = Table(show_lines=True)
    for heading in ("", "data before\nit started", "pods, data\nthere at start"):
        table.add_column(heading, no_wrap=True)
    for heading in ("locality", "epoch:\nimages/s of\nall pods", "source\nsent", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            run.name,
            _lines([(node, size) for node, size in sorted(run.held.items())], prefix) or "nowhere",
            _pods_by_role(run, prefix),
            f"{run.locality:.2f}",
            "\n".join(f"{epoch}: {speed:,.0f}" for epoch, speed in enumerate(run.images_per_second, 1)),
            _size(run.source_bytes),
            duration(run.seconds),
        )
    print_whole(table)


def _lines(sizes: Sequence[tuple[str, int]], prefix: str) -> str:
    return "\n".join(f"{node.removeprefix(prefix)}  {_size(size)}" for node, size in sizes)


def _pods_by_role(run: Run, prefix: str) -> str:
    """The nodes of a run's pods and what of the data was there, below the name of their role.

    Pods are named JOB-ROLE-INDEX-SUFFIX.
    """
    roles: dict[str, list[tuple[str, int]]] = {}
    for pod in run.pods:
        role = pod["pod"].removeprefix(f"{run.name}-").rsplit("-", 2)[0]
        roles.setdefault(role, []).append((pod["node"], pod["cachedBytes"]))
    return "\n".join(f"{role}:\n{_lines(sizes, prefix)}" for role, sizes in roles.items())


def explanation(first: Run, *, size: int) -> str:
    """What the table shows, of a dataset of this size in bytes."""
    more = first.source_bytes - size
    again = (
        f"\nIt read {_size(more)} before the load had brought them, which the store sent once more."
        if more > 0 and _size(first.source_bytes) != _size(size)
        else ""
    )
    return (
        "The first job found no data on any node and read next to the load, which took each file from the store once\n"
        f"for both nodes.{again}\n"
        "The others found all in place. Locality is of the pods that read: 1.00, no node was closer to it."
    )


def finished(*, seconds: float, cluster_seconds: float) -> str:
    """How long the demo took, and its parts."""
    remainder = duration(seconds - cluster_seconds)
    parts = f"{duration(cluster_seconds)} for the cluster, {remainder} for the rest"
    return f"demo finished in {duration(seconds)}: {parts}"


def hints() -> None:
    """Where to look next."""
    print(
        "Look next:\n"
        f"  export KUBECONFIG={KUBECONFIG}\n"
        f"  kubectl get datasets,trainingjobs,pods -n {NAMESPACE} -o wide\n"
        f"  kubectl describe dataset {DATASET} -n {NAMESPACE}\n"
        f"  .venv/bin/tdcs status -n {NAMESPACE}\n"
        f"  .venv/bin/tdcs explain job {SECOND.name} -n {NAMESPACE}\n"
        f"  {cluster.make('down')}        # removes everything again\n"
    )


RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def _in_demo(thing: Object) -> Object:
    return {**thing, "metadata": {**thing["metadata"], "namespace": NAMESPACE}}


def _loading(dataset: Object | None) -> str | None:
    ready = condition(dataset, "Ready")
    if ready.get("status") == "True":
        return None
    status = (dataset or {}).get("status", {})
    total = status.get("totalBytes", 0)
    progress = (
        f"{_size(status.get('physicalBytes', 0))} on the nodes, {_size(total)} in the source; "
        if total
        else ""
    )
    return progress + str(ready.get("message", "the operator has not looked at it yet"))


def _training(job: Object | None) -> str | None:
    if condition(job, "Succeeded").get("status") == "True":
        return None
    failed = condition(job, "Failed")
    if failed.get("status") == "True":
        raise LocalError(what="the training job failed", why=str(failed.get("message", "")))
    conditions = (job or {}).get("status", {}).get("conditions", [])
    return next(
        (str(entry["message"]) for entry in reversed(conditions) if entry.get("message")),
        "the operator has not looked at it yet",
    )


def _json_line(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
