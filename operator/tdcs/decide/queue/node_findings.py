"""What a job says of the nodes that it asked for: the condition NodesRequested."""

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.job_turn import JobTurn


def over_finding(seen: Observed, turn: JobTurn) -> Finding:
    """Of a job that asks for none any more: they came, nothing came, or it needs none."""
    if turn.nodes_reason:
        return finding(names.NODES_REQUESTED, False, turn.nodes_reason, turn.nodes_message)
    if seen.was_admitted:
        return finding(names.NODES_REQUESTED, False, "NodesCame", "its pods have nodes")
    return finding(names.NODES_REQUESTED, False, "NotNeeded", "it needs no further nodes now")


def released_finding(seen: Observed, turn: JobTurn) -> Finding | None:
    """Of a job whose pods are released to ask for nodes, and of one whose were; None: it says nothing new."""
    if turn.awaits_nodes:
        text = f"all its pods exist since {turn.nodes_since}, so that nodes come for those that have no room"
        return finding(names.NODES_REQUESTED, True, "PodsReleased", text)
    return over_finding(seen, turn) if is_true(seen.known.conditions, names.NODES_REQUESTED) else None
