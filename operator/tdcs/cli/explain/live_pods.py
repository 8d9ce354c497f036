"""What the views keep of a pod: where it is, what it reads, and who made it."""

import msgspec

from tdcs.api import names
from tdcs.control.node_usage import claims_of
from tdcs.model.kube_objects import Object, pod_has_ended
from tdcs.model.pod_resources import pod_requests


class PodRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pod.

    `running`: its containers have started. `owner_kind`, `owner_name`: what made it, the pod itself where nothing did;
    a TrainingJob for its pods. `job`: whether that is a TrainingJob. `claims`: what it mounts, as `namespace/name`.
    `waits_for`: why it has no node yet.
    """

    namespace: str
    name: str
    node: str = ""
    gpus: int = 0
    running: bool = False
    ended: bool = False
    failed: bool = False
    job: bool = False
    owner_kind: str = "Pod"
    owner_name: str = ""
    claims: tuple[str, ...] = ()
    waits_for: str = ""
    scheduler: str = ""
    created: str = ""

    @property
    def owner_key(self) -> str:
        return f"{self.owner_kind}/{self.namespace}/{self.owner_name}"


def kept_pod(pod: Object) -> Object:
    """A pod as the informer keeps it: its metadata, and the rest as a row."""
    metadata = pod["metadata"]
    kept_metadata = {field: metadata.get(field, "") for field in ("name", "namespace", "resourceVersion")}
    return {"metadata": kept_metadata, "row": pod_row(pod)}


def pod_row(pod: Object) -> PodRow:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    job = labels.get(names.LABEL_TRAINING_JOB, "")
    owner: Object = next(
        (owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), {}
    )
    scheduled: Object = next(
        (
            condition
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled"
        ),
        {},
    )
    return PodRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=spec.get("nodeName") or "",
        gpus=pod_requests(spec).get(names.GPU_RESOURCE, 0),
        running=status.get("phase") == "Running",
        ended=pod_has_ended(pod),
        failed=status.get("phase") == "Failed",
        job=bool(job),
        owner_kind=names.KIND_TRAINING_JOB if job else owner.get("kind", "Pod"),
        owner_name=job or owner.get("name", metadata["name"]),
        claims=tuple(f"{metadata['namespace']}/{claim}" for claim in claims_of(pod)),
        waits_for=str(scheduled.get("message", "")) if scheduled.get("status") == "False" else "",
        scheduler=spec.get("schedulerName") or "",
        created=str(metadata.get("creationTimestamp") or ""),
    )
