"""`tdcs smoke-test`: one tiny TrainingJob through operator, scheduler and kubelet; what `helm test` runs."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

import click

from tdcs.api import names
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import TRAINING_JOBS

POLL_SECONDS = 0.5
KEPT_SECONDS = 600
"""How long the job is kept when its creator cannot delete it."""


class SmokeTestError(click.ClickException):
    """The job did not succeed; the message says how far it came."""


@click.command(name="smoke-test")
@click.option(
    "--namespace",
    "-n",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    envvar="TDCS_NAMESPACE",
    help="Where the job runs.",
)
@click.option("--image", required=True, help="An image with the program `tdcs`; it prints its version.")
@click.option(
    "--image-pull-secret", "pull_secrets", multiple=True, help="Secret to pull it with; may be repeated."
)
@click.option("--timeout", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Seconds.")
def command(namespace: str, image: str, pull_secrets: tuple[str, ...], timeout: float) -> None:
    """Run a TrainingJob of one pod, without data or GPU, and wait until it has succeeded."""
    # The client takes long to import, and the help needs no cluster.
    from tdcs.cli.api_client import api_client

    async def run() -> Object:
        async with api_client() as api:
            obj = job(namespace=namespace, image=image, pull_secrets=pull_secrets)
            return await smoke_test(api=api, obj=obj, seconds=timeout)

    try:
        done = asyncio.run(run())
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    placed = ", ".join(place["node"] for place in done["status"].get("placement", ()))
    click.echo(f"TrainingJob {namespace}/{done['metadata']['name']} succeeded on {placed}")


async def smoke_test(*, api: KubeApi, obj: Object, seconds: float, poll: float = POLL_SECONDS) -> Object:
    """Create a TrainingJob, wait for its success, delete it; gives it as it was at its end.

    Args:
        obj: the job.
        seconds: until it must have succeeded.
        poll: seconds between two looks.

    Raises:
        SmokeTestError: it failed, or did not end in time.
        KubeError: the API server refused.
    """
    name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
    await api.create(TRAINING_JOBS, obj=obj)
    try:
        deadline = time.monotonic() + seconds
        while True:
            current = await api.get(TRAINING_JOBS, name=name, namespace=namespace)
            conditions = {entry["type"]: entry for entry in _conditions(current)}
            if current is None or _holds(conditions, "Failed") or time.monotonic() > deadline:
                raise SmokeTestError(_story(namespace, name, conditions, seconds))
            if _holds(conditions, "Succeeded"):
                return current
            await asyncio.sleep(poll)
    finally:
        await api.delete(TRAINING_JOBS, name=name, namespace=namespace)


def job(*, namespace: str, image: str, pull_secrets: Sequence[str] = ()) -> Object:
    """The TrainingJob: one pod that meets the Pod Security Standard "restricted" and ends at once."""
    template = {"spec": _pod(image, pull_secrets)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_TRAINING_JOB,
        # Every run has a name of its own: two at a time do not meet.
        "metadata": {"name": f"smoke-test-{uuid.uuid4().hex[:6]}", "namespace": namespace},
        "spec": {
            "runPolicy": {"ttlSecondsAfterFinished": KEPT_SECONDS, "activeDeadlineSeconds": KEPT_SECONDS},
            "replicaSpecs": [{"name": "Worker", "template": template}],
        },
    }


def _pod(image: str, pull_secrets: Sequence[str]) -> dict[str, Any]:
    return {
        "imagePullSecrets": [{"name": name} for name in pull_secrets],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "main",
                "image": image,
                "args": ["version"],
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def _conditions(job: Object | None) -> list[dict[str, Any]]:
    return ((job or {}).get("status") or {}).get("conditions") or []


def _holds(conditions: dict[str, dict[str, Any]], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _story(namespace: str, name: str, conditions: dict[str, dict[str, Any]], seconds: float) -> str:
    lines = [f"  {kind}={entry['status']}: {entry.get('message', '')}" for kind, entry in conditions.items()]
    why = "failed" if _holds(conditions, "Failed") else f"did not succeed within {seconds:.0f} s"
    nothing = ["  the operator has not looked at it: see the logs of the operator's pod"]
    return "\n".join([f"TrainingJob {namespace}/{name} {why}; its conditions:", *(lines or nothing)])
