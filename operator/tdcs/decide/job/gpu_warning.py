"""Warning for a job that requests no GPU in a cluster that has some: it would train on CPUs."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.model.humanize import counted
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import amounts, pod_requests

NO_GPUS_ASKED: Final = "NoGPUsAsked"
"""Reason of the event."""


def gpu_warning(spec: TrainingJobSpec, nodes: Iterable[Object]) -> str:
    """The warning for a new job that requests no GPU although nodes have some; empty when there is none.

    Jobs of framework None may do anything, and jobs with resourceClaims request their devices there: no warning.
    """
    pods = [role.template["spec"] for role in spec.by_role().values()]
    if spec.framework == "None" or any(
        pod.get("resourceClaims") or _has_gpus(pod_requests(pod)) for pod in pods
    ):
        return ""
    gpu_nodes = [node for node in nodes if _has_gpus(amounts((node.get("status") or {}).get("allocatable")))]
    if not gpu_nodes:
        return ""
    verb = "has some" if len(gpu_nodes) == 1 else "have some"
    return (
        f"none of its pods asks for a GPU, and {counted(len(gpu_nodes), 'node')} {verb}: if it is to train on GPUs, "
        "create it again with them in its templates (resources.limits, such as nvidia.com/gpu: 1)"
    )


def _has_gpus(resources: Mapping[str, Any]) -> bool:
    """Whether there are GPUs among resources, or parts of GPUs: nvidia.com/gpu, nvidia.com/mig-1g.5gb, amd.com/gpu."""
    return any(
        amount > 0 and "/" in name and name.partition("/")[2].startswith(("gpu", "mig-"))
        for name, amount in resources.items()
    )
