"""What there is under a cluster's name: facts of its containers and its API, and the judgement of them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tdcs_local.paths import STATE


class State(Enum):
    """What there is under a cluster's name."""

    ABSENT = "there is none"
    FOREIGN = "another checkout made it"
    STOPPED = "its nodes do not run"
    BROKEN = "its making was never completed, or what was made is beyond repair"
    SILENT = "its nodes run, but it does not answer, or its kubeconfig is missing"
    UNFINISHED = "it runs, but the last steps of its making are missing"
    UNWELL = "it runs, but a node is not ready or lacks its GPUs"
    RUNNING = "it runs"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node's container. ``owner`` is the checkout that made it, "" if that is unknown."""

    name: str
    running: bool
    owner: str
    image: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the cluster said.

    ``ready``: its API answers; ``nodes``: those registered; ``well``: those of them that are ready and have their
    GPUs; ``complete``: the annotation of completeness; ``joined``: false if some node certainly never joined, which
    the containers tell even when the API does not answer.
    """

    ready: bool
    nodes: frozenset[str] = frozenset()
    well: frozenset[str] = frozenset()
    complete: str = ""
    joined: bool = True


def judge(*, nodes: Sequence[Node], expected: Sequence[str], owner: str, answer: Answer) -> State:
    """What there is, seen from the checkout ``owner``."""
    if not nodes:
        return State.ABSENT
    if any(node.owner != owner for node in nodes):
        return State.FOREIGN
    if {node.name for node in nodes} != set(expected):
        return State.BROKEN
    if not all(node.running for node in nodes):
        return State.STOPPED
    if not answer.ready:
        return State.SILENT if answer.joined else State.BROKEN
    if not answer.complete:
        return State.UNFINISHED if answer.nodes == set(expected) else State.BROKEN
    return State.RUNNING if answer.well >= set(expected) else State.UNWELL


def well(
    nodes: Iterable[Mapping[str, Any]], *, workers: Sequence[str] = (), resource: str = "", amount: int = 0
) -> frozenset[str]:
    """The names of the API's nodes that are ready; of ``workers``, only those with that amount of a resource."""

    def is_well(node: Mapping[str, Any]) -> bool:
        status = node.get("status", {})
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
        allocatable = status.get("allocatable", {}).get(resource, "0")
        return ready and (node["metadata"]["name"] not in workers or allocatable == str(amount))

    return frozenset(node["metadata"]["name"] for node in nodes if is_well(node))


def certainly_gone(checkout: Path) -> bool:
    """Whether a checkout was removed, rather than being out of this process's sight.

    A folder with nothing but the local state is a removed one too: the engine makes the folder that nodes mount
    again when it starts them again.
    """
    try:
        if checkout.name not in os.listdir(checkout.parent):
            return True
        return set(os.listdir(checkout)) == {STATE.name}
    except OSError:
        return False
