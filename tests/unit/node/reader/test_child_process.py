"""How often processes of the reader are started again."""

from tdcs.node.reader.child_process import StartRate


def test_after_a_kill_the_next_process_starts_at_once_unless_all_end_at_once() -> None:
    now = 100.0
    starts = StartRate(3, clock=lambda: now)
    for _ in range(3):
        assert starts.left() == 0.0
        starts.note()
        now += 0.1
    assert 0.69 < starts.left() < 0.71, "three in a second"
    now += 0.8
    assert starts.left() == 0.0
    starts.note()
    assert starts.left() < 1e-6, "the second one was 1.0 s ago"
