"""Where a pod of a job is, and which other nodes had its data: what `tdcs explain job` says of it."""

from dataclasses import dataclass

ALTERNATIVES = 5
"""Nodes that are named next to the one that a pod is on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another node that holds data of the pod: its score, the bytes there, and why it was not taken."""

    node: str
    score: int
    bytes: int
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """One pod: where it is and how good that is.

    Attributes:
        node: empty while it has none.
        time: when its placement was seen, of which bytes, score and alternatives are; empty: they are of now.
        bytes: of the job's data on that node.
        score: 0 to 10, as the scheduler's extender gives it, among all nodes; None for pods that read no data.
        alternatives: nodes with data that no pod of the job is or was on.
    """

    pod: str
    role: str
    node: str
    phase: str
    bytes: int
    score: int | None
    best_score: int
    sentence: str
    alternatives: tuple[Alternative, ...] = ()
    time: str = ""
