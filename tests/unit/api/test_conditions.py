"""Conditions keep the time of their last change, not of the last look."""

from tdcs.api.conditions import MESSAGE_LIMIT, Condition, Finding, finding, is_true, merge

EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def ready(*, status: bool, reason: str = "Because", generation: int = 1) -> list[Condition]:
    """One condition that was set earlier."""
    found = finding("Ready", status, reason)
    return merge(previous=[], findings=[found], generation=generation, now=EARLIER)


def test_the_transition_time_moves_only_with_the_status() -> None:
    before = ready(status=False)
    same = merge(
        previous=before, findings=[finding("Ready", False, "Other", "text")], generation=2, now=LATER
    )
    assert (same[0].last_transition_time, same[0].reason, same[0].observed_generation) == (
        EARLIER,
        "Other",
        2,
    )
    flipped = merge(previous=before, findings=[finding("Ready", True, "Other")], generation=2, now=LATER)
    assert flipped[0].last_transition_time == LATER


def test_a_transition_that_is_still_to_come_counts_from_now_on() -> None:
    """A clock was a year ahead when it was written: who waits for its age would wait for a year."""
    before = merge(previous=[], findings=[finding("Ready", True, "Because")], generation=1, now=LATER)
    after = merge(previous=before, findings=[finding("Ready", True, "Because")], generation=1, now=EARLIER)
    assert after[0].last_transition_time == EARLIER


def test_conditions_that_nothing_is_said_about_stay() -> None:
    before = ready(status=True)
    after = merge(previous=before, findings=[finding("Mounted", None, "Looking")], generation=1, now=LATER)
    assert after[0] == before[0]
    assert (after[1].type, after[1].status) == ("Mounted", "Unknown")


def test_an_unknown_condition_is_not_true() -> None:
    assert is_true(ready(status=True), "Ready")
    assert not is_true(ready(status=True), "Mounted")
    assert not is_true(ready(status=False), "Ready")


def test_a_message_is_cut_to_what_a_status_may_hold() -> None:
    found = Finding(type="Ready", status="False", reason="Long", message="x" * 5000)
    condition = merge(previous=[], findings=[found], generation=1, now=EARLIER)[0]
    assert len(condition.message) == MESSAGE_LIMIT
    assert condition.message.endswith("…")
