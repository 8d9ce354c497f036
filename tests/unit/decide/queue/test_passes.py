"""How often a waiting job was passed by later ones, and what is kept for it then."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decide.queue.test_gang_turn import job

from tdcs.decide.queue.copy_places import CopyPlaces, PlaceRequest
from tdcs.decide.queue.namespace_quota import Allowances, QuotaCharge
from tdcs.decide.queue.passes import KeptShares, Passes, shortage
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queued_job import QueuedJob, Shortage

GPUS = "requests.nvidia.com/gpu"
NO_QUOTA = Shortage(reason=Reason.QUOTA, message="quota")
NO_PLACE = Shortage(reason=Reason.AT_LIMIT, message="place", dataset="team/m")


def queued(name: str, *, age: float = 0.0, quota: int = 0, place: str = "", **more: Any) -> QueuedJob:
    """A job of one pod; `quota`: GPUs that it takes of its namespace's, `place`: a dataset that it reads."""
    namespace, _, plain = name.rpartition("/")
    return replace(
        job(plain, 1, submitted=-age),
        key=(namespace or "team", plain),
        charges=(QuotaCharge(quota="q", takes={GPUS: quota}),) if quota else (),
        access=(PlaceRequest(dataset=place, limit=1),) if place else (),
        **more,
    )


@pytest.mark.parametrize("max_passes", [1, 2, 5])
def test_a_job_is_named_by_the_admission_that_passes_it_once_too_often(max_passes: int) -> None:
    passes, waiting = Passes(max_passes=max_passes), queued("waits")
    assert not passes.wait(waiting)
    named = [passes.passed_by(queued(f"later{number}")) for number in range(max_passes + 1)]
    assert named == [[]] * (max_passes - 1) + [[waiting], []]
    assert passes.of(waiting) == max_passes + 1


def test_passes_of_earlier_rounds_count() -> None:
    passes, waiting = Passes(max_passes=3), queued("waits", passed=2)
    assert not passes.wait(waiting)
    assert passes.passed_by(queued("later")) == [waiting]
    assert Passes(max_passes=3).wait(queued("waits", passed=3))
    assert Passes(max_passes=0).wait(queued("waits"))


def test_who_was_admitted_before_a_job_was_looked_at_did_not_pass_it() -> None:
    passes, waiting = Passes(max_passes=9), queued("waits")
    passes.passed_by(queued("earlier"))
    passes.wait(waiting)
    assert passes.of(waiting) == 0
    passes.passed_by(queued("later"))
    assert passes.of(waiting) == 1


def test_a_job_behind_that_was_moved_up_passes_those_that_it_overtook() -> None:
    passes, waiting = Passes(max_passes=9), queued("waits")
    passes.passed_by(queued("moved"))
    passes.moved_up([waiting])
    passes.wait(waiting)
    assert passes.of(waiting) == 1
    assert Passes(max_passes=1).wait(waiting) is False
    full = Passes(max_passes=1)
    full.moved_up([waiting])
    assert full.wait(waiting)


@pytest.mark.parametrize("changes", [{"runs": True}, {"data_ready": False}, {"possible": False}])
def test_a_job_that_grows_waits_for_data_or_never_fits_is_passed_freely(changes: dict[str, Any]) -> None:
    passes = Passes(max_passes=1)
    waiting = replace(queued("waits", passed=9), **changes)
    assert not passes.wait(waiting)
    assert passes.passed_by(queued("later")) == []
    assert passes.of(waiting) == 9


def test_a_job_without_quota_is_passed_only_by_those_that_take_of_its_namespaces_quota() -> None:
    passes, waiting = Passes(max_passes=1), queued("waits", quota=1, short=NO_QUOTA)
    passes.wait(waiting)
    for other in (queued("free"), queued("other/x", quota=1)):
        assert passes.passed_by(other) == []
    assert passes.passed_by(queued("same", quota=1)) == [waiting]


def test_a_job_without_a_place_is_passed_only_at_its_dataset() -> None:
    passes, waiting = Passes(max_passes=1), queued("waits", place="team/m", short=NO_PLACE)
    passes.wait(waiting)
    for other in (queued("free"), queued("quota", quota=1), queued("elsewhere", place="team/k")):
        assert passes.passed_by(other) == []
    assert passes.passed_by(queued("reader", place="team/m")) == [waiting]


def test_passes_stay_when_a_job_begins_to_lack_a_quota() -> None:
    passes, waiting = Passes(max_passes=3), queued("waits", quota=1)
    passes.wait(waiting)
    passes.passed_by(queued("first"))
    short = replace(waiting, short=NO_QUOTA)
    assert not passes.lacks_now(short)
    assert not passes.lacks_now(short)  # nothing new
    assert passes.passed_by(queued("of no quota")) == []
    assert passes.of(short) == 1
    assert passes.passed_by(queued("second", quota=1)) == []
    assert passes.passed_by(queued("third", quota=1)) == [short]


def test_a_job_may_be_passed_too_often_by_the_time_that_it_lacks_a_quota() -> None:
    passes, waiting = Passes(max_passes=2), queued("waits", quota=1)
    passes.wait(waiting)
    for name in ("first", "second"):
        passes.passed_by(queued(name))
    assert passes.lacks_now(replace(waiting, short=NO_QUOTA))


def test_a_job_that_was_not_looked_at_has_the_passes_that_it_came_with() -> None:
    passes = Passes(max_passes=2)
    passes.passed_by(queued("first"))
    assert passes.of(queued("new", passed=4)) == 4
    assert not passes.lacks_now(queued("new", short=NO_QUOTA))


@given(ages=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_jobs_that_are_passed_too_often_at_once_are_named_in_the_order_of_the_queue(ages: list[int]) -> None:
    passes = Passes(max_passes=1)
    waiting = [queued(f"j{number}", age=age) for number, age in enumerate(ages)]
    for member in waiting:
        passes.wait(member)
    assert passes.passed_by(queued("later")) == sorted(waiting, key=lambda member: member.order)


def allowances(hard: int, *, used: int = 0) -> Allowances:
    status = {"hard": {GPUS: str(hard)}, "used": {GPUS: str(used)}}
    return Allowances({("team", "q"): {"status": status}})


def lacks(job: QueuedJob, *, kept: KeptShares, quota: Allowances, places: CopyPlaces | None = None) -> str:
    short = shortage(job, allowances=quota, places=places or CopyPlaces(), kept_shares=kept)
    return "" if short is None else short.message


def test_a_quota_is_kept_for_the_first_job_that_was_passed_too_often() -> None:
    kept, quota = KeptShares(), allowances(8, used=6)
    old, middle = queued("old", age=9, quota=4), queued("middle", age=5, quota=4)
    for member in (middle, old, middle):
        kept.keep(member, quota)
    small = queued("young", age=1, quota=1)
    assert lacks(small, kept=kept, quota=quota).startswith(
        "the quotas of namespace team are kept for team/old"
    )
    assert lacks(queued("older", age=99, quota=1), kept=kept, quota=quota) == ""
    assert lacks(replace(old, charges=small.charges), kept=kept, quota=quota) == ""  # for itself
    assert lacks(queued("other/x", quota=1), kept=kept, quota=quota) == ""
    assert lacks(queued("free"), kept=kept, quota=quota) == ""


@pytest.mark.parametrize(("hard", "used"), [(8, 0), (3, 3)], ids=["large enough now", "never large enough"])
def test_a_quota_is_kept_only_for_a_job_that_will_fit_once_others_end(hard: int, used: int) -> None:
    kept, quota = KeptShares(), allowances(hard, used=used)
    kept.keep(queued("old", age=9, quota=4), quota)
    assert kept.quotas == {}


def test_a_place_at_each_dataset_is_kept_for_those_before_it_alone() -> None:
    kept, quota = KeptShares(), allowances(8)
    kept.keep(queued("old", age=9, place="team/m"), quota)
    behind = shortage(
        queued("young", place="team/m"), allowances=quota, places=CopyPlaces(), kept_shares=kept
    )
    assert behind is not None
    assert (behind.reason, behind.dataset) == (Reason.AT_LIMIT, "team/m")
    assert "kept for team/old" in behind.message
    assert lacks(queued("older", age=99, place="team/m"), kept=kept, quota=quota) == ""


def test_a_missing_quota_is_said_before_a_missing_place() -> None:
    places = CopyPlaces({"team/m": [("team", "reader")]})
    both = queued("both", quota=9, place="team/m")
    short = shortage(both, allowances=allowances(8), places=places, kept_shares=KeptShares())
    assert short is not None
    assert (short.reason, short.dataset) == (Reason.QUOTA, "")
    assert short.message.endswith("it waits for others to end, or for a larger quota")
