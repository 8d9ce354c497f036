"""The benchmark `loader` in a pod, on files that it reads through the claim of a Dataset.

    make up && PYTHONPATH=deploy/local python -m bench.training.loader_claim

Needs the local cluster with TDCS and the object store. The files of 100 KB are put into a bucket, a Dataset brings them
onto the nodes, and a TrainingJob with one worker runs the measurement there. Writes results/loader_claim.jsonl.
"""

import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from bench.training import loader
from bench.training.records import keep

from tdcs_local import demo
from tdcs_local.kind import images
from tdcs_local.kind.kubectl import Kubectl, Object, condition, load
from tdcs_local.paths import EXAMPLES
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

NAME = "photos"
SECONDS = 600.0


def fill(*, reporter: Reporter) -> None:
    """The files, in a bucket of their own."""
    with tempfile.TemporaryDirectory() as name, reporter.step(f"fill bucket {NAME}") as step:
        folder = Path(name)
        size = loader.make(folder)
        archive = folder / "photos.tar"
        with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted(folder.glob("*/*.jpg")):
                tar.add(path, arcname=str(path.relative_to(folder)))
        operations.fill_archive(archive, bucket=NAME, parameters={"kind": "photos", "size": size})
        step.result = f"{loader.FILES} files of {size} bytes"


def dataset() -> Object:
    """The Dataset of the demo, with another bucket."""
    (document,) = load(EXAMPLES / "dataset.yaml")
    document["metadata"] = {"name": NAME, "namespace": demo.NAMESPACE}
    document["spec"]["source"]["uri"] = f"s3://{NAME}/"
    return document


def job(image: str) -> Object:
    """One worker that measures."""
    (document,) = load(EXAMPLES / "trainingjob-pytorch.yaml")
    document["metadata"] = {"name": NAME, "namespace": demo.NAMESPACE}
    document["spec"]["workers"] = 1
    document["spec"]["datasets"] = [
        {"name": NAME, "mountPath": "/data", "readiness": {"percent": 100, "timeout": "10m"}}
    ]
    pod = document["spec"]["replicaSpecs"][0]["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"image": image, "args": ["/bench/loader.py", "--files=/data"]}
    container["resources"]["limits"]["memory"] = "2Gi"
    container["volumeMounts"].append({"name": NAME, "mountPath": "/bench"})
    pod["volumes"].append({"name": NAME, "configMap": {"name": NAME}})
    return document


def measured(kubectl: Kubectl) -> list[dict[str, Any]]:
    """What the pod printed when the job has succeeded."""

    def look() -> str | None:
        training_job = kubectl.get("trainingjobs.tdcs.io", NAME, namespace=demo.NAMESPACE)
        if condition(training_job, "Failed").get("status") == "True":
            raise SystemExit(kubectl("logs", "-n", demo.NAMESPACE, f"job/{NAME}-worker", "--tail=40"))
        return None if condition(training_job, "Succeeded").get("status") == "True" else "not succeeded yet"

    kubectl.wait(look, what=f"TrainingJob {NAME} did not succeed", seconds=SECONDS)
    log = kubectl("logs", "-n", demo.NAMESPACE, f"job/{NAME}-worker", "--tail=-1")
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def main() -> None:
    """Fill, load, measure; the Dataset and the job are removed afterwards."""
    reporter, kubectl = Reporter(), Kubectl()
    image = f"tdcs/train-pytorch:{images.ensure(['train-pytorch'], reporter=reporter)['train-pytorch']}"
    demo.apply_dataset(reporter=reporter, kubectl=kubectl)  # its namespace, and the keys of the store
    fill(reporter=reporter)
    program = {"loader.py": Path(loader.__file__).read_text()}
    kubectl.delete("trainingjobs.tdcs.io", NAME, namespace=demo.NAMESPACE)
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": demo.NAMESPACE},
            "data": program,
        },
        dataset(),
        job(image),
    )
    try:
        keep("loader_claim", measured(kubectl))
    finally:
        kubectl.delete("trainingjobs.tdcs.io", NAME, namespace=demo.NAMESPACE)
        kubectl.delete("datasets.tdcs.io", NAME, namespace=demo.NAMESPACE)
        kubectl.delete("configmap", NAME, namespace=demo.NAMESPACE)


if __name__ == "__main__":
    main()
