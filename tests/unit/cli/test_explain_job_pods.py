"""`tdcs explain job`: why a pod of it is, or was, on its node."""

from typing import Any

import pytest
from tests.support.kube.objects import role_of
from tests.unit.cli.builders import held, job, node, pod, printed
from tests.unit.control.builders import NOW

from tdcs.cli.explain.explained_job import JobReport, JobWorld, explain
from tdcs.model.kube_objects import Object


def test_a_pod_on_the_best_node_is_said_to_be_there() -> None:
    world = JobWorld(
        job=job(state="Running", localityPercent="100%"),
        datasets=held(a=60, b=30),
        own_pods=[pod("p0", node="a")],
        nodes=[node("a"), node("b")],
        pods=[pod("p0", node="a")],
    )
    report = explain(world)
    assert report.pods[0].sentence == (
        "is on a, which holds 60 bytes of its 100 bytes (score 10 of 10): no node holds more"
    )
    assert (report.pods[0].alternatives[0].node, report.pods[0].alternatives[0].score) == ("b", 5)
    assert "its locality was 100%" in printed(report)


def test_an_equally_good_node_is_distinguished_from_a_better_one() -> None:
    world = JobWorld(
        job=job(state="Running"),
        datasets=held(a=50, b=50),
        own_pods=[pod("p0", node="a")],
        nodes=[node("a"), node("b")],
        pods=[pod("p0", node="a")],
    )
    (alternative,) = explain(world).pods[0].alternatives
    assert alternative.node == "b"
    assert "no higher score than the pod's own node" in alternative.why_not


def test_why_a_pod_is_not_on_a_better_node_is_said() -> None:
    obj = pod("other", node="a", gpus=3)
    world = JobWorld(
        job=job(state="Running"),
        datasets=held(a=60, b=30, c=60),
        own_pods=[pod("p0", node="b")],
        nodes=[node("a"), node("b"), node("c", unschedulable=True)],
        pods=[pod("p0", node="b"), obj],
    )
    sentence = explain(world).pods[0].sentence
    assert "score 5 of 10" in sentence
    assert "a has score 10: it has 1 nvidia.com/gpu free for the 2 nvidia.com/gpu" in sentence
    assert "c has score 10: its labels or taints keep the pod away" in sentence


def test_pods_that_left_empty_nodes_to_larger_ones_are_explained() -> None:
    placed = pod("p0", node="b")
    world = JobWorld(job=job(state="Running"), datasets=held(a=60), own_pods=[placed])
    assert not any("larger pods" in remark for remark in explain(world).remarks)
    placed["metadata"]["annotations"] = {
        "tdcs.io/leave-nodes": '{"nodes": ["a"], "until": "2026-01-01T00:00:00Z"}'
    }
    assert any("jobs with larger pods waited or ran" in remark for remark in explain(world).remarks)
    # Another's annotation on a pod that the extender does not see changes nothing.
    world.job["spec"]["scheduling"] = {"mode": "Affinity"}
    assert not any("larger pods" in remark for remark in explain(world).remarks)


def test_of_several_copies_the_one_that_the_job_reads_is_named() -> None:
    datasets = held(a=50, b=50)
    datasets["pictures"]["status"]["copies"].append({"id": "1", "nodes": [{"name": "c", "bytes": 50}]})
    world = JobWorld(
        job=job(state="Running", copies=[{"dataset": "pictures", "copy": "1"}]),
        datasets=datasets,
        own_pods=[pod("p0", node="c"), pod("p1", node="a")],
        nodes=[node("a"), node("b"), node("c")],
        pods=[pod("p0", node="c"), pod("p1", node="a"), pod("other", node="c", gpus=2)],
    )
    report = explain(world)
    assert "2 copies, the job reads copy 1" in report.datasets[0]
    first, second = (place.sentence for place in report.pods)
    assert "(score 10 of 10): no node holds more" in first
    assert "holds 50 bytes of its 100 bytes (score 5 of 10), though others are of the copy" in second
    assert "c has score 10: it has 0 nvidia.com/gpu free" in second


def test_a_node_that_a_preload_brought_the_data_to_is_as_good_as_the_datasets_own() -> None:
    datasets = held(a=100)
    datasets["pictures"]["status"]["copies"].append(
        {"id": "preloads", "nodes": [{"name": "b", "bytes": 100}]}
    )
    world = JobWorld(
        job=job(state="Running", copies=[{"dataset": "pictures", "copy": "0"}]),
        datasets=datasets,
        own_pods=[pod("p0", node="b")],
        nodes=[node("a"), node("b")],
        pods=[pod("p0", node="b")],
    )
    report = explain(world)
    assert "100 bytes on a, 100 bytes on b" in report.datasets[0]
    assert "copies" not in report.datasets[0]
    assert report.pods[0].sentence == (
        "is on b, which holds 100 bytes of its 100 bytes (score 10 of 10): no node holds more"
    )


def test_a_job_whose_pods_are_gone_is_explained_from_its_status() -> None:
    places = [{"pod": "p0", "node": "b", "cachedBytes": 30}]
    report = explain(JobWorld(job=job(state="Succeeded", placement=places), datasets=held(a=60, b=30)))
    assert [(pod_report.pod, pod_report.node, pod_report.phase) for pod_report in report.pods] == [
        ("p0", "b", "gone")
    ]


def placed_by(scheduler: str, *, named: bool) -> JobReport:
    """A pod that runs where no data is, although there was room next to it."""
    train, pod_of_job = job(state="Running"), pod("p0", node="b")
    pod_of_job["spec"]["schedulerName"] = scheduler
    if named:
        role_of(train)["template"]["spec"]["schedulerName"] = scheduler
    return explain(
        JobWorld(
            job=train,
            datasets=held(a=60),
            own_pods=[pod_of_job],
            nodes=[node("a"), node("b")],
            pods=[pod_of_job],
        )
    )


@pytest.mark.parametrize(("scheduler", "named"), [("volcano", True), ("default-scheduler", False)])
def test_a_scheduler_that_does_not_look_at_data_is_named(scheduler: str, named: bool) -> None:
    report = placed_by(scheduler, named=named)
    assert (
        f"The scheduler of its pods is {scheduler}, which ranks nodes by data only if" in report.remarks[-1]
    )
    assert ("remove schedulerName from the template" if named else "scheduler.enabled") in report.remarks[-1]
    assert (
        f"the pod was placed by {scheduler}, which does not know where the data is" in report.pods[0].sentence
    )


@pytest.mark.parametrize(("scheduler", "named"), [("my-tdcs-scheduler", False), ("tdcs-scheduler", True)])
def test_the_scheduler_of_tdcs_is_known_by_whatever_name_it_was_installed(
    scheduler: str, named: bool
) -> None:
    report = placed_by(scheduler, named=named)
    assert report.remarks[-1].startswith("Its pods are ranked by data")
    assert "it may have been full" in report.pods[0].sentence


def test_a_pod_whose_template_names_its_node_was_chosen_by_no_scheduler() -> None:
    train, pod_of_job = job(state="Running"), pod("p0", node="b")
    role_of(train)["template"]["spec"]["nodeName"] = "b"
    report = explain(
        JobWorld(
            job=train,
            datasets=held(a=60, b=30),
            own_pods=[pod_of_job],
            nodes=[node("a"), node("b")],
            pods=[pod_of_job],
        )
    )
    assert report.pods[0].sentence == (
        "is on b, the node that it names itself (spec.nodeName); it holds 30 bytes of its 100 bytes (score 5 of 10), "
        "though others hold more (a has score 10): no scheduler was asked"
    )
    assert "names its node itself" in report.pods[0].alternatives[0].why_not
    assert report.remarks[-1] == (
        "No scheduler places its pods of Worker, and their data is not looked at: the template names the node "
        "(spec.nodeName). Use spec.nodeSelector instead to have them placed by data among some nodes."
    )


def test_a_pod_without_a_node_was_not_placed_by_a_scheduler_that_never_looked_at_it() -> None:
    train, pod_of_job = job(state="Starting"), pod("p0", phase="Pending")
    role_of(train)["template"]["spec"]["schedulerName"] = "nosuch"
    pod_of_job["spec"]["schedulerName"] = "nosuch"
    report = explain(
        JobWorld(
            job=train,
            datasets=held(a=60),
            own_pods=[pod_of_job],
            nodes=[node("a"), node("b")],
            pods=[pod_of_job],
        )
    )
    assert report.pods[0].sentence == (
        "waits for the scheduler nosuch to give it a node, which has not looked at it yet: is there a scheduler of "
        "that name?"
    )
    assert report.pods[0].alternatives[0].why_not == "it has room now; the pod has not been placed yet"


def table_of(report: JobReport) -> str:
    return printed(report).partition("Other nodes with data")[2]


def test_nodes_that_pods_of_the_job_were_on_are_no_others() -> None:
    places = [{"pod": name, "node": on, "cachedBytes": 0} for name, on in (("p0", "a"), ("p1", "b"))]
    world = JobWorld(
        job=job(state="Succeeded", placement=places),
        datasets=held(a=60, b=30, c=20),
        nodes=[node("a"), node("b"), node("c")],
        pods=[],
    )
    report = explain(world)
    assert [[alternative.node for alternative in pod_report.alternatives] for pod_report in report.pods] == [
        ["c"],
        ["c"],
    ]
    assert "c " in table_of(report)
    assert report.pods[1].sentence.startswith("was on b, which now holds 30 bytes of its 100 bytes (score 5")
    assert "a has score 10" in report.pods[1].sentence


def test_of_a_suspended_job_no_table_says_why_its_pods_are_not_elsewhere() -> None:
    places = [{"pod": "p0", "node": "a", "cachedBytes": 0}]
    world = JobWorld(
        job=job(state="Suspended", placement=places),
        datasets=held(a=60, c=20),
        nodes=[node("a"), node("c")],
        pods=[],
    )
    assert table_of(explain(world)) == ""


def test_pods_that_wait_for_what_the_job_says_do_not_say_it_again() -> None:
    waits = [pod("p0", phase="Pending"), pod("p1", phase="Pending")]
    for obj in waits:
        obj["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit"}
        ]
    for message, words in (("2 pods have no node: 0/2 nodes fit", "waits for that"), ("", "same as p0")):
        train = job(state="Starting", message=message)
        text = printed(
            explain(JobWorld(job=train, datasets=held(a=60), own_pods=waits, nodes=[], pods=waits))
        )
        assert text.count("0/2 nodes fit") == 1
        assert words in text


@pytest.mark.parametrize(("peers", "advised"), [(2, False), (40, True)])
def test_no_advice_comes_from_two_seconds_of_waits(peers: int, advised: bool) -> None:
    stall = {
        "observedSeconds": peers,
        "peerSeconds": peers,
        "percent": 100,
        "advice": "Replicate",
        "message": "it waits for other nodes: have whole copies on its nodes",
    }
    text = printed(explain(JobWorld(job=job(state="Succeeded", dataStall=stall), datasets=held(a=60))))
    assert ("advice Replicate" in text) == advised
    assert ("waited in 100%" in text) == advised


def test_a_watched_training_loop_comes_first() -> None:
    stall = {
        "observedSeconds": 100,
        "sourceSeconds": 3,
        "loopSeconds": 80,
        "loopWaitSeconds": 40,
        "percent": 3,
        "advice": "FasterLoader",
        "message": "its training loop waits for batches while its reads do not",
    }
    text = printed(explain(JobWorld(job=job(state="Running", dataStall=stall), datasets=held(a=60))))
    assert (
        "Its training loop waited for batches in 50% of 80 s of its processes, and its reads in 3% of" in text
    )
    assert "(advice FasterLoader)" in text


def test_nodes_of_pods_that_run_are_no_others_either() -> None:
    pods = [pod("p0", node="a"), pod("p1", node="b")]
    world = JobWorld(
        job=job(state="Running"),
        datasets=held(a=60, b=30),
        own_pods=pods,
        nodes=[node("a"), node("b")],
        pods=pods,
    )
    report = explain(world)
    assert [pod_report.alternatives for pod_report in report.pods] == [(), ()]
    assert table_of(report) == ""


def with_a_parameter_server(**status: Any) -> Object:
    train = job(**status)
    specs = train["spec"]["replicaSpecs"]
    specs += [{**specs[0], "name": name} for name in ("Chief", "PS")]
    names = ("train-chief-0-x", "train-ps-0-x", "train-worker-0-x")
    train["status"]["placement"] = [{"pod": name, "node": "a", "cachedBytes": 0} for name in names]
    train["spec"]["framework"] = "TensorFlow"
    return train


def test_pods_that_were_cleaned_up_after_the_end_are_in_the_past_tense() -> None:
    chief = pod("train-chief-0-x", node="a", phase="Succeeded", labels={"tdcs.io/role": "chief"})
    ended = with_a_parameter_server(state="Succeeded")
    report = explain(JobWorld(job=ended, datasets=held(a=60), own_pods=[chief]))
    assert [(pod_report.pod, pod_report.role, pod_report.phase) for pod_report in report.pods] == [
        ("train-chief-0-x", "Chief", "Succeeded"),
        ("train-ps-0-x", "PS", "gone"),
        ("train-worker-0-x", "Worker", "gone"),
    ]
    assert all(pod_report.sentence.startswith("was on a") for pod_report in report.pods)
    assert report.pods[1].sentence == "was on a; it read no data: any node was as good"


def test_replaced_pods_of_a_running_job_are_left_out() -> None:
    places = [{"pod": "old", "node": "b", "cachedBytes": 0}]
    running = job(state="Running", placement=places)
    report = explain(JobWorld(job=running, datasets=held(a=60), own_pods=[pod("new", node="a")]))
    assert [pod_report.pod for pod_report in report.pods] == ["new"]
    assert report.pods[0].sentence.startswith("is on a, which holds")


def test_pods_of_a_suspended_job_and_terminating_pods_are_in_the_past_tense() -> None:
    places = [{"pod": "p0", "node": "a", "cachedBytes": 0}]
    suspended = explain(JobWorld(job=job(state="Suspended", placement=places), datasets=held(a=60)))
    assert suspended.pods[0].sentence.startswith("was on a, which now holds")
    going = pod("p0", node="a")
    going["metadata"]["deletionTimestamp"] = NOW
    leaving = explain(JobWorld(job=job(state="Running"), datasets=held(a=60), own_pods=[going]))
    assert leaving.pods[0].sentence.startswith("was on a, which now holds")
    unplaced = explain(JobWorld(job=job(state="Suspended"), datasets=held(a=60), own_pods=[pod("p0")]))
    assert unplaced.pods[0].sentence == "never had a node"


@pytest.mark.parametrize(
    ("meeting", "sentence"),
    [
        (
            {
                "way": "Grow",
                "nodes": ["b"],
                "bytes": 60,
                "expectedSeconds": 6,
                "growSeconds": 5,
                "remoteSeconds": 90,
            },
            (
                "so the copy grows onto b: 60 bytes, expected to take 6 s and to cost the job 5 s; reading from "
                "other nodes was expected to cost 90 s. It is on its way;"
            ),
        ),
        ({"way": "Grow", "nodes": ["b"], "metTime": "2026-01-01T00:00:07Z"}, "It took 7 s."),
        (
            {"way": "Remote", "nodes": ["b"], "reason": "SpecFixesNodes", "remoteSeconds": 90},
            (
                "It reads Dataset pictures from other nodes (expected to cost 90 s): its spec "
                "says how many nodes hold a copy"
            ),
        ),
    ],
)
def test_where_the_job_and_its_data_meet_is_said_with_what_was_expected_and_what_came(
    meeting: Object, sentence: str
) -> None:
    copy = {"dataset": "pictures", "copy": "0", "meeting": {"decidedTime": "2026-01-01T00:00:00Z", **meeting}}
    report = explain(JobWorld(job=job(state="Running", copies=[copy]), datasets=held(a=60)))
    assert any(sentence in text for text in report.remarks), report.remarks
