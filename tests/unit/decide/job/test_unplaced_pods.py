"""Pods of an admitted gang without a node."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.observed_job import JobView, Observed
from tdcs.decide.job.unplaced_pods import (
    Short,
    all_placed,
    awaited_schedulers,
    ending_patience,
    idle_workers,
    is_without_place,
    lacking,
    lacks_rendezvous,
    placed,
    placed_workers,
    short_of,
    without_unseen,
)
from tdcs.model.job_pods import PodProblem, PodView, Unmade

REFUSED = PodProblem(reason="Unschedulable", message="0/3 nodes are available")


def pod(index: int, *, node: str = "", refused: bool = False, **more: Any) -> PodView:
    waiting = {"waiting": REFUSED} if refused else {}
    fields = {"phase": "Running" if node else "Pending", **waiting, **more}
    return PodView(name=f"w{index}", index=str(index), node=node, **fields)


def gang(
    *pods: PodView, replicas: int = 3, least: int = 0, job: JobView | None = None, **more: Any
) -> Observed:
    """A gang of workers; `least`: the fewest with which it runs."""
    elastic = {"elastic": {"minReplicas": least, "maxReplicas": 8}} if least else {}
    containers = [{"name": "main", "image": "train"}]
    worker = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    return Observed(
        spec=job_spec(framework="PyTorch", roles={"Worker": worker}, scheduling={"gang": True}, **elastic),
        status=TrainingJobStatus(),
        jobs={"Worker": job or JobView(exists=True, start_time=NOW)},
        pods=pods,
        workers=replicas if least else None,
        **more,
    )


HELD = [pod(0, node="a"), pod(1, node="a")]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        pytest.param(pod(0), True, id="nobody has looked at it"),
        pytest.param(pod(0, refused=True), True, id="refused"),
        pytest.param(pod(0, waiting=PodProblem(reason="SchedulingGated")), True, id="gated"),
        pytest.param(
            pod(0, waiting=PodProblem(reason="VolumeNotBound")), True, id="its volume is to be bound"
        ),
        pytest.param(pod(0, waiting=PodProblem(reason="ImagePullBackOff")), False, id="its image is missing"),
        pytest.param(pod(0, node="a", phase="Pending"), False, id="it has a node"),
        pytest.param(pod(0, phase="Failed"), False, id="it failed"),
        pytest.param(pod(0, going=True), False, id="it is being deleted"),
    ],
)
def test_a_pod_is_without_place_while_its_scheduler_has_not_bound_it(view: PodView, expected: bool) -> None:
    assert is_without_place(view) is expected


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(gang(*HELD, pod(2, node="b")), id="all have a node"),
        pytest.param(gang(*HELD, pod(2, phase="Failed")), id="a failed one is replaced"),
        pytest.param(gang(pod(0), job=JobView(exists=True, suspended=True)), id="suspended"),
        pytest.param(gang(pod(0), job=JobView(exists=True, failure="x")), id="failed"),
        pytest.param(gang(pod(0), job=JobView()), id="not made"),
        pytest.param(gang(*HELD, pod(2, refused=True), least=2), id="a spare worker of an elastic gang"),
    ],
)
def test_a_gang_lacks_nothing_when_all_pods_that_it_needs_have_a_place(observed: Observed) -> None:
    assert short_of(observed) is None


def test_pods_that_are_refused_unseen_or_never_made_are_missing() -> None:
    short = short_of(gang(pod(0, node="a"), pod(1, refused=True), pod(2), replicas=4))
    assert short is not None
    assert (short.missing, short.total, short.holding, short.unseen) == (3, 4, 1, 1)
    assert short.why == REFUSED.message
    assert not short.spare


def test_the_time_runs_from_the_last_pod_that_was_made_or_bound() -> None:
    early, late = "2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z"
    bound = pod(0, node="a", created=early, scheduled=late)
    tried = pod(1, refused=True, created=early, scheduled="2026-01-01T00:01:00Z")
    for pods, since in (((tried,), early), ((tried, bound), late)):
        short = short_of(gang(*pods))
        assert short is not None
        assert short.since == since
    nothing = short_of(gang())
    assert nothing is not None
    assert nothing.since == NOW


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        (gang(), "no pod could be made"),
        (
            gang(unmade=Unmade(role="Worker", count=3, problem=REFUSED)),
            "Unschedulable: 0/3 nodes are available",
        ),
        (gang(pod(0, scheduler="mine")), "no scheduler named mine has looked at them: see schedulerName"),
        (gang(pod(0, scheduler="mine"), pod(1, refused=True)), REFUSED.message),
    ],
)
def test_the_reason_is_that_of_the_scheduler_or_why_no_pod_was_made(observed: Observed, why: str) -> None:
    short = short_of(observed)
    assert short is not None
    assert short.why.startswith(why)


def test_an_elastic_gang_lacks_pods_below_its_minimum_alone() -> None:
    refused = [pod(1, refused=True), pod(2, refused=True)]
    assert short_of(gang(pod(0, node="a"), *refused, least=1)) is None
    below = short_of(gang(pod(0, node="a"), *refused, least=2))
    assert below is not None
    assert below.missing == 2
    every = short_of(gang(pod(0, node="a"), *refused, least=1), spare=False)
    assert every is not None
    assert every.missing == 2


def test_an_elastic_gang_needs_the_pod_at_which_its_workers_meet() -> None:
    meets = gang(pod(0, refused=True), pod(1, node="a"), pod(2, node="a"), least=1)
    assert lacks_rendezvous(meets)
    assert short_of(meets) is not None
    assert not lacks_rendezvous(gang(pod(1, node="a"), least=1))
    assert not lacks_rendezvous(gang(pod(0, node="a"), pod(1, refused=True), least=1))
    assert not lacks_rendezvous(gang(pod(0, refused=True)))


@pytest.mark.parametrize(
    ("pods", "idle", "kept"),
    [
        pytest.param([pod(0, node="a"), pod(1, node="a"), pod(2, node="a")], 0, 3, id="none"),
        pytest.param([*HELD, pod(2, refused=True)], 1, 2, id="the last"),
        pytest.param(HELD, 1, 2, id="one that was not made"),
        pytest.param([pod(0, node="a"), pod(1), pod(2, node="a")], 0, 3, id="not one before a placed one"),
        pytest.param([pod(0, node="a"), pod(1), pod(2)], 2, 1, id="two"),
        pytest.param(
            [pod(0), pod(1), pod(2, node="a")], 2, 1, id="all without a place where they cannot meet"
        ),
        pytest.param([pod(0), pod(1), pod(2)], 3, 1, id="never below the minimum"),
    ],
)
def test_the_last_workers_without_a_place_are_idle(pods: list[PodView], idle: int, kept: int) -> None:
    observed = gang(*pods, least=1)
    assert (idle_workers(observed), placed_workers(observed)) == (idle, kept)


def test_spare_workers_are_lacking_only_where_all_needed_ones_have_a_place() -> None:
    spare = lacking(gang(*HELD, pod(2, refused=True), least=1))
    assert spare is not None
    assert (spare.spare, spare.missing) == (True, 1)
    needed = lacking(gang(pod(0, node="a"), pod(1, refused=True), pod(2, refused=True), least=2))
    assert needed is not None
    assert not needed.spare
    meets = lacking(gang(pod(0, refused=True), pod(1, node="a"), pod(2, node="a"), least=2))
    assert meets is not None
    assert meets.spare  # fewer workers make room for the first one
    assert lacking(gang(*HELD, pod(2, node="a"), least=1)) is None
    rigid = lacking(gang(*HELD, pod(2, refused=True)))
    assert rigid is not None
    assert not rigid.spare


SHORT = Short(missing=2, total=3, holding=1, since=NOW, why="no GPU", unseen=1)


def test_a_gang_that_has_run_gives_up_only_spare_workers() -> None:
    fresh = gang()
    ran = replace(fresh, status=TrainingJobStatus(running_time=NOW))
    assert ending_patience(fresh, SHORT) is SHORT
    assert ending_patience(ran, SHORT) is None
    spare = replace(SHORT, spare=True)
    assert ending_patience(ran, spare) is spare
    assert ending_patience(ran, None) is None


@pytest.mark.parametrize(("missing", "unseen", "counted"), [(3, 1, 2), (2, 2, 0), (1, 0, 1)])
def test_pods_that_no_scheduler_has_looked_at_can_be_left_out(
    missing: int, unseen: int, counted: int
) -> None:
    seen = without_unseen(replace(SHORT, missing=missing, unseen=unseen))
    assert (0 if seen is None else seen.missing) == counted
    assert seen is None or seen.unseen == 0


def test_schedulers_are_awaited_that_have_not_looked_at_a_pod() -> None:
    pods = [
        pod(0, scheduler="mine"),
        pod(1, scheduler="busy", refused=True),
        pod(2, scheduler="done", node="a"),
        pod(3, scheduler="gone", going=True),
    ]
    assert awaited_schedulers(gang(*pods)) == {"mine"}
    assert awaited_schedulers(gang()) == set()


def test_of_each_pod_the_newest_counts_as_placed() -> None:
    old = pod(2, node="a", phase="Failed", created="2026-01-01T00:00:00Z")
    new = pod(2, created="2026-01-01T00:00:05Z")
    assert placed(gang(*HELD, old)) == 3
    assert placed(gang(*HELD, old, new)) == 2
    assert not all_placed(gang(*HELD, old, new))
    assert all_placed(gang(*HELD, pod(2, node="b")))
    assert not all_placed(gang(*HELD))


@pytest.mark.parametrize(
    ("short", "text"),
    [
        (
            SHORT,
            "2 of its 3 pods found no place within 30 s (no GPU), so the other 1 gave theirs back: a gang runs whole",
        ),
        (
            replace(SHORT, total=1, missing=1, holding=0, why=""),
            "its pod found no place within 30 s, so the room that was kept for it was given back: ",
        ),
        (
            replace(SHORT, spare=True),
            "2 of its 3 pods found no place within 30 s (no GPU), so these workers were given back, and the job",
        ),
    ],
)
def test_the_owner_hears_what_found_no_place_and_what_was_given_back(short: Short, text: str) -> None:
    assert short.sentence(patience=30.0).startswith(text)
