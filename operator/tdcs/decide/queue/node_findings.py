"""What a job says of nodes that its released pods wait for."""

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.job_turn import JobTurn
from tdcs.decide.queue.pod_admission import Reason


def released_finding(seen: Observed, turn: JobTurn, decision: Decision) -> Finding | None:
    """The condition NodesRequested of a job whose pods are released to ask for nodes, and of one whose were; None: it
    says nothing new."""
    if turn.awaits_nodes:
        text = f"all its pods exist since {turn.nodes_since}, so that nodes come for those that have no room"
        return finding(names.NODES_REQUESTED, True, "PodsReleased", text)
    if not is_true(seen.known.conditions, names.NODES_REQUESTED):
        return None
    if decision.reason is Reason.NO_NODES:
        again = (
            f"; it asks again at {turn.nodes_next}, and starts before if room comes"
            if turn.nodes_next
            else ""
        )
        return finding(names.NODES_REQUESTED, False, Reason.NO_NODES, f"{decision.message}{again}")
    if decision.admitted:
        return finding(names.NODES_REQUESTED, False, "NodesCame", "its pods have nodes")
    return finding(names.NODES_REQUESTED, False, "NotNeeded", "it asks for no nodes now")
