"""Taking a worker off a node, and freeing the node's disk.

Its StatefulSet is scaled to none first; when the pod is gone, a short Job on the node removes the block files; then the
StatefulSet is deleted. So the StatefulSet itself remembers that a node is still to be cleaned, across restarts.
"""

from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.control.cachecluster import pod_security
from tdcs.control.cachecluster.blueprint import Blueprint, labels_of
from tdcs.control.cachecluster.cache_children import pinned_to
from tdcs.control.context import Context
from tdcs.kube.apply import digest_of, owner_reference
from tdcs.model.kube_objects import Object, job_ending
from tdcs.model.kube_resources import JOBS, STATEFUL_SETS

COMPONENT = "clean"
DEADLINE_SECONDS = 180
KEPT_SECONDS = 600

# The folder is an argument, never a part of the script.
_SCRIPT = 'for part in "$@"; do rm -rf -- "$part"; done'


def job_name(*, cluster: str, worker_set: Object) -> str:
    """Derives from the StatefulSet and its generation: a worker that comes back and goes again is cleaned up again,
    also when it came back before its StatefulSet was deleted."""
    metadata = worker_set["metadata"]
    return f"{cluster}-clean-{digest_of([metadata['uid'], metadata.get('generation', 0)])}"


def job(plan: Blueprint, *, worker_set: Object, node: str, views_too: bool) -> Object:
    """The Job that frees a node's disk.

    Args:
        worker_set: the StatefulSet of the node's worker.
        views_too: whether no pod can read native views any more; else the node plugin removes them with their last
            reader.
    """
    labels = labels_of(cluster=plan.cluster, component=COMPONENT)
    folders = [f"{plan.tier_path}/{folder}" for folder in (names.BLOCK_FOLDER, names.AGENT_FOLDER)]
    if views_too:
        folders.append(f"{plan.tier_path}/{names.VIEWS_FOLDER}")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(cluster=plan.cluster, worker_set=worker_set),
            "namespace": plan.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(plan.owner)],
        },
        "spec": {
            "backoffLimit": 2,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "affinity": pinned_to(node),
                    "tolerations": [{"operator": "Exists"}],
                    **plan.pulls,
                    "containers": [
                        {
                            "name": COMPONENT,
                            "image": plan.spec.image or plan.image,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["/bin/sh", "-c", _SCRIPT, "clean", *folders],
                            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                            "securityContext": pod_security.cleaning(),
                            "volumeMounts": [{"name": "blocks", "mountPath": plan.tier_path}],
                        }
                    ],
                    "volumes": [
                        {"name": "blocks", "hostPath": {"path": plan.tier_path, "type": "DirectoryOrCreate"}}
                    ],
                },
            },
        },
    }


async def remove_worker(*, context: Context, plan: Blueprint, worker_set: Object, views_too: bool) -> bool:
    """One step towards a node without worker and blocks; gives whether it is done."""
    metadata = worker_set["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    if metadata.get("deletionTimestamp"):
        return False
    if worker_set["spec"].get("replicas", 1) != 0:
        patch = {"spec": {"replicas": 0}}
        await context.api.merge(STATEFUL_SETS, name=name, namespace=namespace, patch=patch)
        context.applier.drop_applied(STATEFUL_SETS, namespace=namespace, name=name)
        return False
    node = str((metadata.get("annotations") or {}).get(names.ANNOTATION_NODE, ""))
    live = context.stores.nodes.get(("", node))
    if live is not None and not _answers(live):
        await _tell(context=context, plan=plan, node=node, why="the node is not ready")
        await context.api.delete(STATEFUL_SETS, name=name, namespace=namespace, uid=metadata["uid"])
        return True
    status = worker_set.get("status") or {}
    if status.get("observedGeneration", 0) < metadata.get("generation", 0) or status.get("replicas", 0):
        return False  # the pod still ends
    if live is not None and not await _cleaned(
        context=context, plan=plan, worker_set=worker_set, node=node, views_too=views_too
    ):
        return False
    await context.api.delete(STATEFUL_SETS, name=name, namespace=namespace, uid=metadata["uid"])
    return True


async def _cleaned(
    *, context: Context, plan: Blueprint, worker_set: Object, node: str, views_too: bool
) -> bool:
    name = job_name(cluster=plan.cluster, worker_set=worker_set)
    live = await context.api.get(JOBS, name=name, namespace=plan.namespace)
    if live is None:
        wanted_job = job(plan, worker_set=worker_set, node=node, views_too=views_too)
        await context.applier.apply(JOBS, wanted=wanted_job, live=None, owner=plan.owner)
        return False
    ended = job_ending(live)
    if ended == "Failed":
        await _tell(context=context, plan=plan, node=node, why=f"see Job {plan.namespace}/{name}")
    return bool(ended)


async def _tell(*, context: Context, plan: Blueprint, node: str, why: str) -> None:
    await context.recorder.record(
        about=plan.owner,
        reason="DiskNotFreed",
        message=f"the cached blocks on node {node} could not be removed ({why}): remove {plan.tier_path} there by hand",
        type_="Warning",
    )


def _answers(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return all(
        condition.get("status") == "True" for condition in conditions if condition.get("type") == "Ready"
    )
