"""What of a mount lies where, for the choice of the workers that go."""

from collections.abc import Sequence

from tdcs.controllers.context import WorkKey
from tdcs.controllers.mounts.report import MountDecision, MountReport
from tdcs.listing.result import Listed
from tdcs.planning.ledger import MountLedger, NodeHolding


def ledger_of(
    decision: MountDecision, known: MountReport, listed: Listed, users: Sequence[WorkKey], *, moving: bool
) -> MountLedger[WorkKey]:
    """The ledger of a mount, by what its last pass found and decided."""
    return MountLedger(
        path=decision.mount,
        readers=frozenset(users),
        sizes=listed.totals.sizes,
        nodes={
            node: NodeHolding(held_bytes=state.held_bytes, complete=state.complete, present=state.present)
            for node, state in known.states.items()
            if state.manifest == listed.digest
        },
        draining=decision.draining,
        live=decision.live,
        busy=any(
            one.missing_bytes > 0 and known.placements[key].want.load for key, one in known.progress.items()
        ),
        moving=moving,
    )
