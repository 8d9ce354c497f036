"""What the queue says to a job: why it may start, or what it waits for."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.queue.test_gang_turn import job

from tdcs.api.names import GPU_RESOURCE
from tdcs.api.trainingjob_status import DataWait
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.copy_places import PlaceRequest
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import Growth, QueuedJob, Shortage
from tdcs.decide.queue.room_table import RoomTable
from tdcs.decide.queue.wait_message import (
    admission_of,
    released_admission,
    shown,
    wait_sentence,
    waiting_admission,
)

GPU = GPU_RESOURCE


def queue(*waiting: QueuedJob, free: dict[str, int] | None = None, **more: Any) -> Schedule:
    """Jobs that wait, with free GPUs by node."""
    room = {node: {GPU: gpus} for node, gpus in (free or {}).items()}
    return Schedule(waiting=waiting, room=RoomTable(room), **more)


def says(decision: Schedule, uid: str = "me") -> tuple[Reason, str]:
    admission = waiting_admission(decision, uid)
    assert not admission.admitted
    return admission.reason, admission.message


def test_too_few_gpus_are_named_with_those_that_are_free() -> None:
    assert says(queue(job("me", 4, 4), free={"a": 3, "b": 2})) == (
        Reason.NO_ROOM,
        f"needs 8 {GPU} at once, 5 {GPU} free on the 2 nodes that its 2 pods may use; position 1 in the queue",
    )


def test_a_single_node_and_a_single_pod_are_named_as_one() -> None:
    assert "free on the only node that its 1 pod may use" in says(queue(job("me", 4), free={"a": 3}))[1]


def test_gpus_that_are_spread_over_too_many_nodes_are_said_to_be() -> None:
    reason, text = says(queue(job("me", 4, 4), free={"a": 4, "b": 3, "c": 3}))
    assert reason is Reason.NO_ROOM
    assert text.startswith(f"only 1 of its 2 pods would find room at once: 10 {GPU} are free on the 3 nodes")


def test_a_job_whose_pods_would_fit_waits_behind_others() -> None:
    reason, text = says(queue(job("first", 2), job("me", 1), free={"a": 1}))
    assert (reason, text) == (
        Reason.BEHIND,
        "its pods would fit, but others are first: position 2 in the queue; behind team/first",
    )


def test_a_job_hears_no_name_of_another_namespace() -> None:
    stranger = replace(job("secret", 2), key=("other", "secret"))
    decision = queue(stranger, job("me", 1), free={"a": 1}, holder="secret", aside=frozenset("a"))
    text = says(decision)[1]
    assert "behind a job of another namespace" in text
    assert "1 node is set aside for a job of another namespace, which was passed too often" in text
    assert "secret" not in text


def test_only_jobs_that_could_start_stand_before_another_one() -> None:
    never, loading = replace(job("never", 99), possible=False), job("loading", 2, ready=False)
    text = says(queue(never, loading, job("me", 2), free={"a": 1}))[1]
    assert text.endswith("position 2 in the queue")


def test_nodes_that_are_set_aside_are_counted_and_not_told_to_their_holder() -> None:
    decision = queue(job("first", 8), job("me", 2), free={"a": 1}, holder="first", aside=frozenset("ab"))
    assert "; 2 nodes are set aside for team/first" in says(decision)[1]
    assert "set aside" not in says(decision, "first")[1]


def test_the_holder_hears_what_is_ended_for_it() -> None:
    first = queue(job("me", 2), free={"a": 1}, holder="me", victims={"v": "x"}, gone_by="soon")
    assert says(first)[1].endswith(
        "; it takes the place of 1 job of lower priority, whose pods are ended now"
    )
    two = replace(first, victims={"v": "x", "w": "x"})
    assert "the place of 2 jobs of" in says(two)[1]
    assert says(replace(first, victims={}))[1].endswith(
        "; pods are being ended that leave it room, by soon at the latest"
    )


@pytest.mark.parametrize("may_preempt", [True, False])
def test_only_a_job_that_may_preempt_hears_of_pods_that_linger(may_preempt: bool) -> None:
    waiting = replace(job("me", 2), may_preempt=may_preempt)
    text = says(queue(waiting, free={"a": 1}, lingering="tomorrow"))[1]
    assert ("pods that are being ended have until tomorrow" in text) is may_preempt


def test_an_elastic_job_that_runs_says_how_many_workers_it_waits_for() -> None:
    def growing(count: int) -> QueuedJob:
        growth = Growth(base=2, pods=PodGroup(count=count, request={GPU: 2}))
        return replace(job("me", 2), growth=growth, runs=True)

    assert says(queue(growing(3), free={"a": 1}))[1].startswith("3 more workers wait for room: needs 2")
    assert says(queue(growing(1), free={"a": 1}))[1].startswith("1 more worker waits for room: needs 2")


def test_a_missing_quota_is_said_without_a_place_in_the_queue() -> None:
    short = Shortage(reason=Reason.QUOTA, message="ResourceQuota q is used up")
    assert says(queue(job("first", 1), replace(job("me", 1), short=short))) == (Reason.QUOTA, short.message)


@pytest.mark.parametrize(
    ("readers", "words"),
    [
        ((), "; it is the next"),
        (("a",), "; team/a is before it"),
        (("a", "b", "c"), "; 3 are before it, the last of them team/c"),
    ],
)
def test_a_job_without_a_place_at_its_dataset_says_who_gets_the_next_ones(
    readers: tuple[str, ...], words: str
) -> None:
    here, elsewhere = (PlaceRequest(dataset=f"team/{name}", limit=1) for name in "mk")
    short = Shortage(reason=Reason.AT_LIMIT, message="full", dataset="team/m")
    before = [replace(job(name, 1), access=(here,)) for name in readers]
    others = [
        replace(job("k", 1), access=(elsewhere,)),
        replace(job("loading", 1, ready=False), access=(here,)),
        replace(job("never", 1), access=(here,), possible=False),
    ]
    me = replace(job("me", 1), access=(here,), short=short)
    assert says(queue(*before, *others, me)) == (Reason.AT_LIMIT, f"full{words}")


NODES = {"a": {GPU: 8, "cpu": 4000}, "b": {GPU: 2, "cpu": 64_000}}


@pytest.mark.parametrize(
    ("groups", "reason", "words"),
    [
        pytest.param(
            [PodGroup(count=1, request={GPU: 1}, nowhere="no node has the label x")],
            Reason.NO_MATCH,
            "no node has the label x",
            id="no node matches",
        ),
        pytest.param(
            [PodGroup(count=1, request={GPU: 1}, nodes=frozenset("z"))],
            Reason.NEVER,
            "none of the nodes that its pods may use is there any more",
            id="its nodes went",
        ),
        pytest.param(
            [PodGroup(count=1, request={GPU: 9})],
            Reason.NEVER,
            f"a pod asks for 9 {GPU}, and the largest node that it may use has 8 {GPU}: ask for less",
            id="no node is large enough",
        ),
        pytest.param(
            [PodGroup(count=1, request={GPU: 9}, nodes=frozenset("b"))],
            Reason.NEVER,
            f"and the largest node that it may use has 2 {GPU}",
            id="of the nodes that it may use",
        ),
        pytest.param(
            [PodGroup(count=1, request={GPU: 8, "cpu": 5000, "pods": 1})],
            Reason.NEVER,
            f"a pod asks for 5 cpu, 8 {GPU}, and no node that it may use has all of that",
            id="no node has enough of everything",
        ),
        pytest.param(
            [PodGroup(count=1, request={"nvidia.com/gpus": 1})],
            Reason.NEVER,
            f"a pod asks for nvidia.com/gpus, which no node that it may use has; they have {GPU}: correct the name",
            id="a device of an unknown name",
        ),
        pytest.param(
            [PodGroup(count=3, request={GPU: 5})],
            Reason.NEVER,
            "even with all nodes empty only 1 of its 3 pods would fit: ask for fewer or smaller pods",
            id="too many pods",
        ),
    ],
)
def test_a_job_that_can_never_start_says_what_to_change(
    groups: list[PodGroup], reason: Reason, words: str
) -> None:
    capacity = {node: {"pods": 110, **amounts} for node, amounts in NODES.items()}
    me = replace(job("me"), groups=tuple(groups), possible=False)
    said_reason, text = says(Schedule(waiting=(me,), capacity=capacity))
    assert said_reason is reason
    assert words in text


WAIT = DataWait(
    dataset="pictures",
    nodes=["a"],
    since="2026-01-01T00:00:00Z",
    until="2026-01-01T00:10:00Z",
    expected_seconds=90,
    wait_seconds=100,
    other_way="Grow",
    other_seconds=400,
)


def test_a_job_that_waits_for_its_data_says_what_waiting_and_not_waiting_cost() -> None:
    decision = queue(job("me", 1), free={"a": 1}, awaits_data=frozenset(["me"]))
    admission = waiting_admission(decision, "me", data_wait=WAIT)
    assert (admission.reason, admission.message) == (Reason.AWAITS_DATA, wait_sentence(WAIT))
    assert admission.message == (
        "it waits for room on the nodes with Dataset pictures (a), which is expected at 2026-01-01T00:01:30Z and "
        "costs it 100 s; a copy on other nodes costs 400 s. It starts where there is room at 2026-01-01T00:10:00Z at "
        "the latest"
    )
    assert waiting_admission(decision, "me").reason is Reason.BEHIND
    over = queue(job("me", 1), free={"a": 1})
    assert waiting_admission(over, "me", data_wait=WAIT).reason is Reason.BEHIND


@pytest.mark.parametrize(("count", "words"), [(3, "(a, b, c)"), (4, "(a, b, c and 1 more)")])
def test_only_the_first_nodes_are_named(count: int, words: str) -> None:
    assert words in wait_sentence(WAIT.model_copy(update={"nodes": list("abcdef")[:count]}))


@pytest.mark.parametrize(
    ("pods", "reason", "text"),
    [
        (0, Reason.READY, "its datasets have a place for it"),
        (1, Reason.FITS, "its pod fits"),
        (2, Reason.FITS, "all 2 pods fit at once"),
    ],
)
def test_an_admitted_job_hears_that_its_pods_fit(pods: int, reason: Reason, text: str) -> None:
    admission = admission_of(pods)
    assert (admission.admitted, admission.reason, admission.message) == (True, reason, text)


@pytest.mark.parametrize(
    ("pods", "words"), [(1, "its pod is made at once"), (2, "all 2 pods are made at once")]
)
def test_pods_that_wait_for_new_nodes_are_made_at_once(pods: int, words: str) -> None:
    admission = released_admission(pods)
    assert (admission.admitted, admission.reason) == (True, Reason.AWAITS_NODES)
    assert admission.message.startswith(words)


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        (GPU, 4, f"4 {GPU}"),
        ("cpu", 1500, "1.5 cpu"),
        ("cpu", 2000, "2 cpu"),
        ("memory", 2 << 30, "2 GiB memory"),
        ("ephemeral-storage", 512, "512 bytes ephemeral-storage"),
    ],
)
def test_amounts_are_shown_in_the_unit_that_people_ask_for(resource: str, value: int, text: str) -> None:
    assert shown(resource, value) == text
