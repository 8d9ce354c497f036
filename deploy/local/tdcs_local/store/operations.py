"""The slow object store of the local cluster: install it, fill it, set its link, read its counters.

The store's own control server does the work (``deploy/images/store``); it is reached through the API
server's service proxy, so nothing is forwarded and nothing listens on this machine.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, images
from tdcs_local.kind.kubectl import Kubectl, Object, condition, load
from tdcs_local.paths import LOCAL
from tdcs_local.progress import Reporter
from tdcs_local.store import mnist

NAMESPACE = "tdcs-store"
ENDPOINT = f"http://store.{NAMESPACE}.svc:7070"
CONTROL = f"/api/v1/namespaces/{NAMESPACE}/services/http:store:control/proxy"
READY_SECONDS = 300
FILL_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Made:
    """A dataset made of a seed: how many files of which size (``100KiB``, ``10KiB-200KiB``)."""

    files: int
    size: str
    seed: str = "1"


IMAGES = "images"
DATASETS: Mapping[str, Made] = {
    "small": Made(files=2000, size="10KiB-100KiB"),
    "large": Made(files=4, size="64MiB"),
}
"""The named datasets that are made of a seed; ``images`` is the one of real images."""


def up(*, reporter: Reporter) -> None:
    """Install the store or bring it up to date, and wait until the link holds its rate."""
    kubectl = cluster.access()
    tag = images.ensure(["store"], reporter=reporter)["store"]
    with reporter.step("object store") as step:
        objects = load(LOCAL / "store" / "store.yaml")
        kubectl.apply(*(thing for thing in objects if thing["kind"] == "Namespace"))
        _create_credentials(kubectl)
        kubectl.apply(*(tagged(thing, image=f"tdcs/store:{tag}") for thing in objects))

        def missing() -> str | None:
            deployment = kubectl.get("deployment", "store", namespace=NAMESPACE) or {}
            status = deployment.get("status", {})
            if status.get("observedGeneration", 0) < deployment.get("metadata", {}).get("generation", 1):
                return "waiting for the controller"
            if status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas") == 1:
                return None
            return str(condition(deployment, "Available").get("message") or "its pod is not there yet")

        kubectl.wait(
            missing,
            what=f"the object store is not ready (deployment {NAMESPACE}/store)",
            seconds=READY_SECONDS,
            step=step,
            explain=lambda: kubectl("describe", "pods", f"--namespace={NAMESPACE}")[-2500:],
        )
        step.result = ENDPOINT


def fill(name: str, *, reporter: Reporter, bucket: str = "", seeded: Made | None = None) -> Object:
    """Fill a bucket (named like the dataset, if not given) and return the summary of its manifest.

    ``made`` stands for the named dataset's own numbers. A bucket that holds just that already is left alone.
    """
    bucket = bucket or name
    with reporter.step(f"fill bucket {bucket} with {name}") as step:
        summary = (
            _fill_images(bucket, reporter) if name == IMAGES else _fill_made(bucket, seeded or DATASETS[name])
        )
        step.result = f"{summary['totalFiles']} files, {summary['totalBytes']} bytes"
    return summary


def remove(bucket: str, *, reporter: Reporter) -> Object:
    """Remove a bucket that was filled, and return the summary of what it had."""
    with reporter.step(f"remove bucket {bucket}") as step:
        path = f"/v1/datasets/{quote(bucket, safe='')}"
        summary = _ask("DELETE", path, "delete", "--raw", f"{CONTROL}{path}")
        step.result = f"{summary['totalFiles']} files, {summary['totalBytes']} bytes"
    return summary


def set_link(*, egress: str | None = None, ingress: str | None = None, reporter: Reporter) -> Object:
    """Set the rate of one or both directions (``200mbit``, ``unlimited``); returns once they hold."""
    rates = {side: rate for side, rate in (("egress", egress), ("ingress", ingress)) if rate is not None}
    holds = _post("/v1/link", json.dumps(rates)) if rates else {}
    if rates:
        reporter.say(f"the store's link: egress {holds['egress']}, ingress {holds['ingress']}")
    return holds


def status() -> Object:
    """Rates in bits per second (null: unlimited), wire bytes, and what each bucket holds and has sent."""
    return _get("/v1/status")


def payload_bytes_sent(*, bucket: str = "") -> int:
    """Bytes of object content that a bucket, or all of them, ever sent."""
    buckets = status()["buckets"]
    return sum(counts["sentBytes"] for name, counts in buckets.items() if bucket in {"", name})


def wire_bytes_sent() -> int:
    """Bytes that ever left the S3 port, protocol headers included."""
    return int(status()["link"]["wireBytes"]["egress"])


def manifest(name: str) -> Object:
    """``{bucket, parameters, totalBytes, totalFiles, files: [{path, size, sha256}]}`` of a filled bucket."""
    return _get(f"/v1/datasets/{quote(name, safe='')}/manifest")


def credentials(*, namespace: str, name: str, reporter: Reporter) -> None:
    """Create or update a Secret that a Dataset's ``secretRef`` can name; its namespace must exist."""
    kubectl = cluster.access()
    secret_object = kubectl.get("secret", "store", namespace=NAMESPACE)
    if secret_object is None:
        raise LocalError(
            what=f"no credentials for secret {namespace}/{name}",
            why="the object store is not installed",
            remedy="`python -m tdcs_local store up`",
        )
    keys = {key: base64.b64decode(value).decode() for key, value in secret_object["data"].items()}
    kubectl.apply(secret(namespace=namespace, name=name, keys=keys))
    reporter.say(f"secret {namespace}/{name} holds the store's credentials; its endpoint is {ENDPOINT}")


def secret(*, namespace: str, name: str, keys: Mapping[str, str]) -> Object:
    """A Secret with these keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": dict(keys),
    }


def tagged(thing: Object, *, image: str) -> Object:
    """The object with the image of the store in place of its development tag."""
    text = json.dumps(thing).replace('"tdcs/store:dev"', json.dumps(image))
    image_object: Object = json.loads(text)
    return image_object


def _create_credentials(kubectl: Kubectl) -> None:
    """Make the store's only account, once: later runs, and one at the same time, keep what is there."""
    keys = {"accessKeyId": secrets.token_hex(10), "secretAccessKey": secrets.token_hex(20)}
    account = secret(namespace=NAMESPACE, name="store", keys=keys)
    try:
        kubectl(
            "create", "-f", "-", stdin=json.dumps(account), what="the store's credentials were not created"
        )
    except LocalError as error:
        if "AlreadyExists" not in error.why:
            raise


def _fill_made(bucket: str, seeded: Made) -> Object:
    parameters = json.dumps({"files": seeded.files, "size": seeded.size, "seed": seeded.seed})
    return _post(f"/v1/datasets/{quote(bucket, safe='')}", parameters)


def _fill_images(bucket: str, reporter: Reporter) -> Object:
    path = f"/v1/datasets/{quote(bucket, safe='')}"
    parameters = mnist.parameters()
    held: Mapping[str, Any] = status()["buckets"].get(bucket) or {}
    if held.get("parameters") == parameters:
        summary = _get(path)
        if summary["whole"]:
            return summary
    return fill_archive(mnist.archive(reporter=reporter), bucket=bucket, parameters=parameters)


def fill_archive(archive: Path, *, bucket: str, parameters: Mapping[str, object]) -> Object:
    """Fill a bucket with the files of a tar archive; ``parameters`` say in its manifest what they are."""
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    query = urlencode({"sha256": sha256, "parameters": json.dumps(parameters)})
    return _post(f"/v1/datasets/{quote(bucket, safe='')}/archive?{query}", file=str(archive))


def _get(path: str) -> Object:
    return _ask("GET", path, "get", "--raw", f"{CONTROL}{path}")


def _post(path: str, text: str | None = None, *, file: str = "-") -> Object:
    return _ask("POST", path, "create", "--raw", f"{CONTROL}{path}", "-f", file, stdin=text)


def _ask(verb: str, path: str, *words: str, stdin: str | None = None) -> Object:
    kubectl = cluster.access()
    try:
        answer: Object = json.loads(kubectl(*words, stdin=stdin, timeout=FILL_SECONDS))
    except LocalError as error:
        # the API server's own errors have a reason in brackets; the store's are sentences that say what to do
        from_server = error.why.startswith("Error from server: ")
        remedy = (
            ""
            if from_server
            else "`python -m tdcs_local store up` installs the store, or shows what is wrong"
        )
        failure = f"the object store did not do {verb} {path.partition('?')[0]}"
        raise LocalError(what=failure, why=error.why, remedy=remedy) from error
    return answer
