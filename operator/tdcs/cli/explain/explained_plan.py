"""What `tdcs explain job` says of a plan of tdcs-train: where its stages are, and whether it keeps what was expected.

The plan is the document of `tdcs-train plan --json` in a variable of the job's template; what was measured is what
`tdcs-train run` leaves as the message with which its container ends. Both are a user's: what is no plan says nothing.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tdcs.api import names
from tdcs.cli.explain.pod_place import PodPlace
from tdcs.model.kube_objects import Object

PLAN_VARIABLE = "TDCS_TRAIN_PLAN"
MEASURED, FLUSHED = "secondsPerMiniBatch", "flushedMicroBatches"
"""In the message of a container that has ended; the second is there in mode flush only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Workers of each stage, and the links between them."""

    replicas: tuple[int, ...]
    expected_seconds: float
    machines: tuple[int, ...]
    """Of each level of the network, the innermost first."""
    bytes_per_second: tuple[float, ...]


def plan_of(template: Mapping[str, Any]) -> Plan | None:
    """The plan in a variable of a pod template; None where there is none, or nothing that is one."""
    for container in template["spec"].get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == PLAN_VARIABLE:
                return _parsed(variable.get("value"))
    return None


def plan_remarks(
    plan: Plan, *, template: Mapping[str, Any], places: Sequence[PodPlace], pods: Sequence[Object]
) -> list[str]:
    """Where the stages are, which machines of the plan are torn apart, and the measured time next to the expected one.

    Args:
        template: of the pods of the role Worker.
        places: where the pods are.
        pods: the pods themselves.
    """
    per_pod = _workers_of_a_pod(template)
    nodes = [place.node for place in places if place.role == "Worker"]
    shape = "-".join(map(str, plan.replicas))
    kind = f"a pipeline of {len(plan.replicas)} stages" if len(plan.replicas) > 1 else "data parallel"
    link = f", over links of {plan.bytes_per_second[-1] * 8e-6:.0f} Mbit/s" if plan.bytes_per_second else ""
    expected = f", {plan.expected_seconds:.4g} s a mini-batch" if plan.expected_seconds else ""
    remarks = [f"It was planned as {kind}, {shape} workers{link}{expected}."]
    if nodes and all(nodes) and len(nodes) * per_pod >= sum(plan.replicas):
        remarks += _placement(plan, nodes, per_pod)
    message = _message(pods)
    if message and plan.expected_seconds:
        remarks.append(_comparison(plan, message))
    return remarks


def _comparison(plan: Plan, message: Mapping[str, Any]) -> str:
    """The measured time next to the expected one of the same mode: a flush fills and empties the pipeline."""
    measured, micro_batches = _number(message, MEASURED), int(_number(message, FLUSHED))
    expected, mode = plan.expected_seconds, ""
    if micro_batches and len(plan.replicas) > 1:
        expected *= (micro_batches + len(plan.replicas) - 1) / micro_batches
        mode = (
            f": {plan.expected_seconds:.4g} s with a full pipeline, about {expected:.4g} s in mode flush with "
            f"{micro_batches} micro-batches"
        )
    return (
        f"It took {measured:.4g} s a mini-batch, {measured / expected:.2f} times what the plan expects{mode}."
    )


def _placement(plan: Plan, nodes: Sequence[str], per_pod: int) -> list[str]:
    node_of = [node for node in nodes for _ in range(per_pod)]
    firsts = [0, *itertools.accumulate(plan.replicas)]
    parts = [
        f"stage {stage} ({_ranks(begin, end)}) on {_listed(node_of[begin:end])}"
        for stage, (begin, end) in enumerate(itertools.pairwise(firsts))
    ]
    remarks = [f"Its plan as it is placed: {'; '.join(parts)}."]
    inner = plan.machines[0] if len(plan.machines) > 1 else 1
    torn = [
        (begin, end)
        for begin, end in itertools.pairwise(range(0, firsts[-1] + 1, inner))
        if len(set(node_of[begin:end])) > 1
    ]
    if torn:
        begin, end = torn[0]
        more = f", and {len(torn) - 1} more such groups are" if len(torn) > 1 else ""
        remarks.append(
            f"The plan takes {_ranks(begin, end)} for one machine, and they are on {_listed(node_of[begin:end])}{more}"
            ": the slower links between nodes count there. Give a pod as many GPUs as the machine has workers "
            "(tdcs-train plan --job does), or plan with --levels as it is."
        )
    elif len(plan.machines) == 1 and len(set(node_of)) < len(node_of):
        remarks.append(
            "Some of its workers share a node: the links between these are faster than it was planned for."
        )
    return remarks


def _workers_of_a_pod(template: Mapping[str, Any]) -> int:
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get(names.GPU_RESOURCE)
        for container in template["spec"].get("containers") or ()
    ]
    counts = [int(str(limit)) for limit in limits if str(limit).isdecimal()]
    return max([1, *counts])


def _ranks(begin: int, end: int) -> str:
    return f"worker {begin}" if end - begin == 1 else f"workers {begin} to {end - 1}"


def _listed(nodes: Sequence[str]) -> str:
    each = list(dict.fromkeys(nodes))
    return each[0] if len(each) == 1 else f"{', '.join(each[:-1])} and {each[-1]}"


def _message(pods: Sequence[Object]) -> Mapping[str, Any]:
    """Of the first worker that has measured something."""
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in (container.get("state"), container.get("lastState")):
                message = _json(((state or {}).get("terminated") or {}).get("message"))
                if _number(message, MEASURED):
                    return message
    return {}


def _parsed(text: Any) -> Plan | None:
    document = _json(text)
    stages = document.get("stages")
    if not isinstance(stages, list) or not stages:
        return None
    replicas = tuple(int(_number(each, "replicas")) for each in stages)
    if not all(replicas):
        return None
    levels = document.get("levels")
    levels = levels if isinstance(levels, list) else []
    return Plan(
        replicas=replicas,
        expected_seconds=_number(document, "expectedSeconds"),
        machines=tuple(max(1, int(_number(each, "machines"))) for each in levels),
        bytes_per_second=tuple(_number(each, "bytesPerSecond") for each in levels),
    )


def _json(text: Any) -> Mapping[str, Any]:
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _number(document: Any, name: str) -> float:
    """A positive number of a document; 0 where it has none."""
    found = document.get(name) if isinstance(document, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0.0
    return float(found) if 0 < found < 1e15 else 0.0
