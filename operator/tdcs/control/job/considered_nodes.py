"""What nodes had when a job's pods were placed, kept in its status: a later look finds other room and other data."""

from collections.abc import Sequence

from tdcs.api.trainingjob import READING_ROLES
from tdcs.api.trainingjob_status import CONSIDERATIONS_LIMIT, PLACEMENT_LIMIT, Consideration
from tdcs.control.context import Stores
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.considered_nodes import consider, is_of_another_placement
from tdcs.decide.place.data_location import held, wanted_near
from tdcs.model.job_pods import newest
from tdcs.model.pod_resources import added, amounts


def after(observed: Observed, decision: Decision, *, stores: Stores, now: str) -> Sequence[Consideration]:
    """What the status says of past placements, with that of the pods that have got a node since it was written."""
    published = observed.status.considered
    if not decision.admitted or not observed.datasets:
        return published
    written = {(entry.pod, entry.node) for entry in observed.status.placement}
    listed = sorted((pod for pod in newest(observed.pods) if pod.node), key=lambda pod: pod.name)[
        :PLACEMENT_LIMIT
    ]
    placed = [pod for pod in listed if (pod.name, pod.node) not in written]
    if not placed or (published and not is_of_another_placement(published[-1], now=now)):
        return published

    def own(node: str) -> dict[str, int]:
        """What the pods that were placed just now take of a node."""
        return added(stores.usage.takes((observed.namespace, pod.name)) for pod in placed if pod.node == node)

    roles = {role: spec for role, spec in observed.spec.by_role().items() if role in READING_ROLES}
    consideration = consider(
        placed_on={pod.node for pod in placed},
        templates={role: spec.template["spec"] for role, spec in roles.items()},
        held=held(observed.datasets),
        wanted_copies=wanted_near(observed.datasets, chosen=decision.copies),
        node_of=lambda name: stores.nodes.get(("", name)),
        free=lambda name, node: added(
            (
                amounts((node.get("status") or {}).get("allocatable")),
                {resource: -value for resource, value in stores.usage.taken(name).items()},
                own(name),
            )
        ),
        now=now,
    )
    return [*published, consideration][-CONSIDERATIONS_LIMIT:]
