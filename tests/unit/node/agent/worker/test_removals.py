"""A block that was removed is registered again only when the master has heard of the removal."""

from tdcs.node.agent.transfer.registrar import SETTLED_SECONDS, Removals


def test_a_removed_block_rests_until_the_heartbeat_after_it_has_passed() -> None:
    now = [100.0]
    removals = Removals(clock=lambda: now[0])
    removals.note(1)
    now[0] += 1
    removals.note(2)
    assert removals.recent() == [1, 2]
    removals.note(1)  # removed once more: the time counts from the last one
    now[0] += SETTLED_SECONDS - 0.5
    assert removals.recent() == [2, 1]
    now[0] += 0.5
    assert removals.recent() == []
