"""Reads that a source does not answer: when it is away, when one file is, and when that has to be asked."""

from tdcs.node.agent.mount.source_state import TRIES, UnansweredReads


def test_a_block_that_is_alone_in_being_asked_for_is_doubtful_until_another_one_is_answered() -> None:
    reads = UnansweredReads(away_seconds=10)
    verdicts, doubts = [], []
    for number in range(TRIES):
        now = 100.0 + number
        verdicts.append(reads.note(7, now=now))
        doubts.append(reads.doubtful(7))
        if doubts[-1]:
            reads.answered(now=now)  # a byte of another file was asked for
        assert not reads.away(now=now)
    assert (verdicts, doubts) == ([False, False, False, True], [False, True, True, True])


def test_a_source_is_away_after_some_seconds_without_any_answer_and_no_sooner() -> None:
    reads = UnansweredReads(away_seconds=10)
    for now in range(100, 110):
        assert not reads.note(now, now=now)
        assert not reads.away(now=now)
    assert reads.away(now=110)
    reads.answered(now=111)
    assert not reads.away(now=200)
