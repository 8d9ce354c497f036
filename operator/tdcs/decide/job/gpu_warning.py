"""Whether somebody forgot the GPUs of a job: it would train on processors, beside GPUs that stand idle."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.model.humanize import counted
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import amounts, pod_requests

NO_GPUS_ASKED: Final = "NoGPUsAsked"
"""Reason of the event."""


def gpu_warning(spec: TrainingJobSpec, nodes: Iterable[Object]) -> str:
    """What to tell the author of a new job that asks for no GPU where nodes have some; empty when there is nothing.

    A job of framework None may be anything, and one that claims devices (resourceClaims) asks for what it needs.
    """
    pods = [role.template["spec"] for role in spec.by_role().values()]
    if spec.framework == "None" or any(
        pod.get("resourceClaims") or _has_gpus(pod_requests(pod)) for pod in pods
    ):
        return ""
    found = [node for node in nodes if _has_gpus(amounts((node.get("status") or {}).get("allocatable")))]
    if not found:
        return ""
    has = "has some" if len(found) == 1 else "have some"
    return (
        f"none of its pods asks for a GPU, and {counted(len(found), 'node')} {has}: if it is to train on GPUs, "
        "create it again with them in its templates (resources.limits, such as nvidia.com/gpu: 1)"
    )


def _has_gpus(resources: Mapping[str, Any]) -> bool:
    """Whether there are GPUs among resources, or parts of GPUs: nvidia.com/gpu, nvidia.com/mig-1g.5gb, amd.com/gpu."""
    return any(
        amount > 0 and "/" in name and name.partition("/")[2].startswith(("gpu", "mig-"))
        for name, amount in resources.items()
    )
