"""`tdcs explain job`: the answers to the two questions that people have, in their words."""

import io
from collections.abc import Sequence
from typing import Any, cast

import click
import pytest
from rich.console import Console
from tests.support.objects import role_of
from tests.unit.controllers.builders import NOW, dataset
from tests.unit.kube.fake import error

from tdcs.api.dataset import Dataset
from tdcs.cli.explain.command import existing, show
from tdcs.cli.explain.dataset import explain_dataset
from tdcs.cli.explain.job import Report, World, explain
from tdcs.kube.api import KubeApi, Object, ObjectList
from tdcs.kube.errors import NotFoundError
from tdcs.kube.resources import DATASETS, PODS, TRAINING_JOBS, Resource

GPU = "nvidia.com/gpu"


def job(**status: Any) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: "2"}}}]}}
    return {
        "metadata": {"name": "train", "namespace": "team", "creationTimestamp": NOW},
        "spec": {
            "replicaSpecs": [{"name": "Worker", "template": template}],
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
        },
        "status": status,
    }


def pod(
    name: str, *, node: str = "", gpus: int = 2, labels: dict[str, str] | None = None, **status: Any
) -> Object:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running", **status},
    }


def node(name: str, *, gpus: int = 4, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {GPU: str(gpus)}}}


def held(**nodes: int) -> dict[str, Object]:
    """The dataset, of which these nodes hold so many bytes of 100."""
    return {"pictures": dataset(nodes=nodes).model_dump(by_alias=True, mode="json")}


def printed(report: Report) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(report, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_pod_on_the_best_node_is_said_to_be_there() -> None:
    world = World(
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


def test_a_node_that_is_as_good_is_told_from_one_that_is_better() -> None:
    world = World(
        job=job(state="Running"),
        datasets=held(a=50, b=50),
        own_pods=[pod("p0", node="a")],
        nodes=[node("a"), node("b")],
        pods=[pod("p0", node="a")],
    )
    (other,) = explain(world).pods[0].alternatives
    assert other.node == "b"
    assert "no higher score than the pod's own node" in other.why_not


def test_why_a_pod_is_not_on_a_better_node_is_said() -> None:
    other = pod("other", node="a", gpus=3)
    world = World(
        job=job(state="Running"),
        datasets=held(a=60, b=30, c=60),
        own_pods=[pod("p0", node="b")],
        nodes=[node("a"), node("b"), node("c", unschedulable=True)],
        pods=[pod("p0", node="b"), other],
    )
    sentence = explain(world).pods[0].sentence
    assert "score 5 of 10" in sentence
    assert "a has score 10: it has 1 nvidia.com/gpu free for the 2 nvidia.com/gpu" in sentence
    assert "c has score 10: its labels or taints keep the pod away" in sentence


def test_pods_that_left_empty_nodes_to_larger_ones_are_explained() -> None:
    placed = pod("p0", node="b")
    world = World(job=job(state="Running"), datasets=held(a=60), own_pods=[placed])
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
    world = World(
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
    world = World(
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


def test_what_may_not_be_listed_is_said_and_the_rest_is_told() -> None:
    world = World(job=job(state="Running"), datasets=held(a=60, b=30), own_pods=[pod("p0", node="b")])
    found = explain(world)
    assert "you may not list nodes" in found.pods[0].sentence
    assert "30 bytes" in printed(found)


def test_why_it_waits_is_said_in_the_operators_words() -> None:
    told = "needs 4 nvidia.com/gpu at once, 3 nvidia.com/gpu free; position 2 of 2; behind team/big"
    report = explain(World(job=job(state="Queued", reason="NotEnoughRoom", message=told)))
    assert report.headline == f"It waits for its turn: {told}"
    assert "there is no such Dataset" in report.datasets[0]
    assert told in printed(report)


def test_a_pod_that_does_not_start_quotes_the_reason() -> None:
    waiting = {
        "name": "main",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no [such] image"}},
    }
    own = pod("p0", node="a", phase="Pending", containerStatuses=[waiting])
    report = explain(World(job=job(state="Starting"), datasets=held(a=60), own_pods=[own]))
    assert "p0 waits: ImagePullBackOff: no [such] image" in printed(report)


def test_a_job_whose_pods_are_gone_is_explained_from_its_status() -> None:
    places = [{"pod": "p0", "node": "b", "cachedBytes": 30}]
    report = explain(World(job=job(state="Succeeded", placement=places), datasets=held(a=60, b=30)))
    assert [(each.pod, each.node, each.phase) for each in report.pods] == [("p0", "b", "gone")]


def test_a_job_that_nobody_has_looked_at_says_so() -> None:
    assert "the operator has not looked at it yet" in explain(World(job=job())).headline


def test_a_dataset_that_cannot_be_understood_hides_nothing_else() -> None:
    world = World(job=job(state="Waiting"), datasets={"pictures": {"spec": "nonsense"}})
    told = explain(world).datasets[0]
    assert "the object cannot be understood (spec: " in told
    assert "no such Dataset" not in told


def test_a_dataset_that_nobody_has_looked_at_is_not_called_missing() -> None:
    unread = {"pictures": {"metadata": {"name": "pictures"}, "spec": {"source": {"uri": "s3://b/p"}}}}
    told = explain(World(job=job(state="Waiting"), datasets=unread)).datasets
    assert told == ("pictures: the operator has not looked at it yet",)


def test_a_dataset_that_cannot_be_read_is_quoted() -> None:
    refused = held(a=0)
    mounted = next(one for one in refused["pictures"]["status"]["conditions"] if one["type"] == "Mounted")
    mounted |= {"status": "False", "reason": "SourceRefused", "message": "403 Forbidden"}
    told = explain(World(job=job(state="Waiting"), datasets=refused)).datasets[0]
    assert told.endswith("it cannot be read now: SourceRefused: 403 Forbidden")


def placed_by(scheduler: str, *, named: bool) -> Report:
    """A pod that runs where no data is, although there was room beside it."""
    asked, own = job(state="Running"), pod("p0", node="b")
    own["spec"]["schedulerName"] = scheduler
    if named:
        role_of(asked)["template"]["spec"]["schedulerName"] = scheduler
    return explain(
        World(job=asked, datasets=held(a=60), own_pods=[own], nodes=[node("a"), node("b")], pods=[own])
    )


@pytest.mark.parametrize(("scheduler", "named"), [("volcano", True), ("default-scheduler", False)])
def test_a_scheduler_that_does_not_look_at_data_is_named(scheduler: str, named: bool) -> None:
    report = placed_by(scheduler, named=named)
    assert f"Its pods are placed by {scheduler}, which ranks nodes by data only if" in report.remarks[-1]
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


def test_of_a_dataset_on_many_nodes_the_first_are_named() -> None:
    nodes = {f"node{number:02}": number for number in range(1, 21)}
    told = explain(World(job=job(state="Waiting"), datasets=held(**nodes))).datasets[0]
    assert "20 bytes on node20" in told
    assert told.endswith("13 bytes on node13, less or as much on 12 more")


def table_of(report: Report) -> str:
    return printed(report).partition("Other nodes with data")[2]


def test_nodes_that_pods_of_the_job_were_on_are_no_others() -> None:
    places = [{"pod": name, "node": on, "cachedBytes": 0} for name, on in (("p0", "a"), ("p1", "b"))]
    world = World(
        job=job(state="Succeeded", placement=places),
        datasets=held(a=60, b=30, c=20),
        nodes=[node("a"), node("b"), node("c")],
        pods=[],
    )
    report = explain(world)
    assert [[other.node for other in each.alternatives] for each in report.pods] == [["c"], ["c"]]
    assert "c " in table_of(report)
    assert report.pods[1].sentence.startswith("was on b, which now holds 30 bytes of its 100 bytes (score 5")
    assert "a has score 10" in report.pods[1].sentence


def test_nodes_of_pods_that_run_are_no_others_either() -> None:
    own = [pod("p0", node="a"), pod("p1", node="b")]
    world = World(
        job=job(state="Running"),
        datasets=held(a=60, b=30),
        own_pods=own,
        nodes=[node("a"), node("b")],
        pods=own,
    )
    report = explain(world)
    assert [each.alternatives for each in report.pods] == [(), ()]
    assert table_of(report) == ""


def with_a_parameter_server(**status: Any) -> Object:
    found = job(**status)
    specs = found["spec"]["replicaSpecs"]
    specs += [{**specs[0], "name": name} for name in ("Chief", "PS")]
    names = ("train-chief-0-x", "train-ps-0-x", "train-worker-0-x")
    found["status"]["placement"] = [{"pod": name, "node": "a", "cachedBytes": 0} for name in names]
    found["spec"]["framework"] = "TensorFlow"
    return found


def test_pods_that_were_cleaned_up_after_the_end_are_told_in_the_past() -> None:
    chief = pod("train-chief-0-x", node="a", phase="Succeeded", labels={"tdcs.io/role": "chief"})
    ended = with_a_parameter_server(state="Succeeded")
    report = explain(World(job=ended, datasets=held(a=60), own_pods=[chief]))
    assert [(each.pod, each.role, each.phase) for each in report.pods] == [
        ("train-chief-0-x", "Chief", "Succeeded"),
        ("train-ps-0-x", "PS", "gone"),
        ("train-worker-0-x", "Worker", "gone"),
    ]
    assert all(each.sentence.startswith("was on a") for each in report.pods)
    assert report.pods[1].sentence == "was on a; it read no data: any node was as good"


def test_of_a_job_that_runs_pods_that_were_replaced_are_not_told() -> None:
    places = [{"pod": "old", "node": "b", "cachedBytes": 0}]
    running = job(state="Running", placement=places)
    report = explain(World(job=running, datasets=held(a=60), own_pods=[pod("new", node="a")]))
    assert [each.pod for each in report.pods] == ["new"]
    assert report.pods[0].sentence.startswith("is on a, which holds")


def test_pods_of_a_suspended_job_and_pods_on_their_way_out_are_told_in_the_past() -> None:
    places = [{"pod": "p0", "node": "a", "cachedBytes": 0}]
    suspended = explain(World(job=job(state="Suspended", placement=places), datasets=held(a=60)))
    assert suspended.pods[0].sentence.startswith("was on a, which now holds")
    going = pod("p0", node="a")
    going["metadata"]["deletionTimestamp"] = NOW
    leaving = explain(World(job=job(state="Running"), datasets=held(a=60), own_pods=[going]))
    assert leaving.pods[0].sentence.startswith("was on a, which now holds")
    unplaced = explain(World(job=job(state="Suspended"), datasets=held(a=60), own_pods=[pod("p0")]))
    assert unplaced.pods[0].sentence == "never had a node"


def test_a_dataset_says_what_it_is_granted_who_reads_it_and_when_it_leaves() -> None:
    conditions = [
        {
            "type": "Granted",
            "status": "False",
            "reason": "NotAllFits",
            "message": "6 MB of 10 MB found room",
            "lastTransitionTime": NOW,
        }
    ]
    copies = [
        {"id": "0", "nodes": [{"name": "a", "bytes": 6_000_000}]},
        {"id": "clone-1", "nodes": [{"name": "b", "bytes": 1_000_000, "arriving": 5_000_000}]},
    ]
    found = Dataset.model_validate(
        {
            "spec": {
                "source": {"uri": "file:///data"},
                "access": {"maxConcurrentJobs": 1, "onLimit": "Clone"},
                "eviction": {"policy": "Timed", "ttl": "168h"},
            },
            "status": {
                "state": "Degraded",
                "conditions": conditions,
                "copies": copies,
                "grant": {"bytes": 12_000_000, "slots": 2400},
                "lastUsedTime": NOW,
                "mountPath": "/p",
            },
        }
    )
    reads = job(conditions=[{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}])
    waits = {**job(reason="DatasetAtLimit"), "metadata": {"name": "later", "namespace": "team"}}
    lines = explain_dataset(
        namespace="team", name="pictures", dataset=found, jobs=[reads, waits], created=NOW, now=NOW
    )
    text = "\n".join(lines)
    assert "Granted=False (NotAllFits): 6 MB of 10 MB found room" in text
    assert "It may take 12.0 MB of the cache: 2400 of its 4096 slots" in text
    assert "Copy 0: 6.0 MB on a; 1 job may read it at once" in text
    assert "Copy clone-1: 1.0 MB on b; 5.0 MB to come" in text
    assert "Read by train" in text
    assert "Waited for by later (DatasetAtLimit)" in text
    assert f"168h after its last use (spec.eviction.ttl), last used {NOW}" in text


def leaving(*, jobs: Sequence[Object] = (), eviction: Object | None = None, **status: Any) -> str:
    """The last line: when the Dataset leaves the cache."""
    granted = {"totalBytes": 100, "mountPath": "/p", "grant": {"bytes": 100, "slots": 4096}}
    found = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}, "eviction": eviction or {}},
            "status": {**granted, **status},
        }
    )
    return explain_dataset(namespace="team", name="pictures", dataset=found, jobs=jobs, created=NOW, now=NOW)[
        -1
    ]


READS = job(conditions=[{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}])
UNKNOWN = {"type": "Granted", "status": "False", "reason": "UnknownPolicy", "lastTransitionTime": NOW}
NEVER = {"policy": "Timed", "schedule": "61 3 * * *"}
LEAVES: dict[str, tuple[dict[str, Any], str]] = {
    "idle": ({}, "Idle, it leaves the cache when others need its room, by policy LRU, not used yet"),
    "read by a job": ({"jobs": [READS]}, "It stays in the cache while it is read, "),
    "mounted by another pod": ({"inUse": True}, "It stays in the cache while it is read, "),
    "waited for": ({"jobs": [job()]}, "It stays in the cache while jobs wait for it, "),
    "being deleted": (
        {"state": "Deleting"},
        "It is being deleted: it leaves the cache as soon as no pod uses",
    ),
    "never mounted": (
        {"mountPath": "", "grant": None},
        "It is not mounted, so nothing of it is in the cache",
    ),
    "not decided": ({"grant": None}, "What of it may be in the cache is not decided yet"),
    "evicted": (
        {"grant": {"reason": "Evicted"}},
        "It has left the cache, and is loaded again when a job asks",
    ),
    "of an unknown policy": (
        {"eviction": {"policy": "Fifo"}, "conditions": [UNKNOWN]},
        "It does not leave the cache: no eviction policy Fifo is installed",
    ),
    "of a schedule that never fires": (
        {"eviction": NEVER},
        "It does not leave the cache: spec.eviction.schedule (61 3 * * *) never fires",
    ),
}


@pytest.mark.parametrize("case", LEAVES)
def test_when_a_dataset_leaves_is_explained_as_the_operator_decides_it(case: str) -> None:
    status, begin = LEAVES[case]
    assert leaving(**status).startswith(begin)


def test_conditions_that_say_the_same_are_one_line_without_words_twice() -> None:
    def condition(kind: str, reason: str, message: str) -> Object:
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": NOW,
        }

    size = "100 bytes of 100 bytes on 1 node"
    found = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}},
            "status": {
                "copies": [{"id": "0", "nodes": []}],
                "conditions": [
                    condition("Mounted", "Mounted", "file:///data can be read through the cache"),
                    condition("Placed", "Placed", "on 1 node"),
                    condition("Loaded", "Loaded", size),
                    condition("Ready", "Loaded", size),
                ],
            },
        }
    )
    lines = explain_dataset(namespace="team", name="p", dataset=found, jobs=[], created=NOW, now=NOW)
    assert lines[2:5] == [
        "Placed=True: on 1 node",
        f"Loaded=True, Ready=True: {size}",
        "Copy 0: 0 bytes on no node yet",
    ]


class Bare:
    """A cluster, with TDCS or without."""

    def __init__(self, *, knows: bool) -> None:
        self._knows = knows

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> None:
        return None

    async def list(self, resource: Resource, **_: object) -> ObjectList:
        if not self._knows:
            raise error(NotFoundError)
        return ObjectList(items=[], resource_version="1")


@pytest.mark.parametrize(
    ("resource", "knows", "text"),
    [
        (TRAINING_JOBS, False, "the cluster does not know TrainingJobs: install TDCS, or its definitions"),
        (DATASETS, False, "the cluster does not know Datasets: install TDCS, or its definitions"),
        (TRAINING_JOBS, True, "there is no TrainingJob x in namespace n; kubectl get"),
        (PODS, False, "there is no Pod x in namespace n; kubectl get"),
    ],
)
async def test_what_is_not_there_may_be_the_object_or_tdcs(
    resource: Resource, knows: bool, text: str
) -> None:
    with pytest.raises(click.ClickException, match=text):
        await existing(
            cast(KubeApi, Bare(knows=knows)), resource, kind=resource.kind, name="x", namespace="n"
        )


def test_a_job_that_waits_for_a_place_says_at_what_and_how_much_of_it_may_be_cached() -> None:
    granted = {
        "type": "Granted",
        "status": "False",
        "reason": "QuotaExceeded",
        "message": "quota vision allows 6 MB of 10 MB",
        "lastTransitionTime": NOW,
    }
    pictures: Object = {
        "spec": {"source": {"uri": "file:///data"}, "access": {"maxConcurrentJobs": 1}},
        "status": {
            "totalBytes": 10_000_000,
            "mountPath": "/p",
            "claimName": "pictures",
            "activeJobs": 1,
            "waitingJobs": 2,
            "grant": {"bytes": 6_000_000, "slots": 2400, "reason": "QuotaExceeded"},
            "conditions": [granted],
        },
    }
    why = "Dataset team/pictures lets 1 job read it at once (spec.access.maxConcurrentJobs), and team/first reads it"
    report = explain(
        World(job=job(state="Queued", reason="DatasetAtLimit", message=why), datasets={"pictures": pictures})
    )
    assert report.headline == f"It waits for its turn: {why}"
    (line,) = report.datasets
    assert "1 read (at most 1 a copy), 2 wait (spec.access)" in line
    pictures["status"]["activeJobs"] = 0
    report = explain(World(job=job(state="Queued", message=why), datasets={"pictures": pictures}))
    others = "jobs of other Datasets with the same source beside these"
    assert f"0 read (at most 1 a copy), 2 wait (spec.access, {others})" in report.datasets[0]
    assert "it may take 6.0 MB (QuotaExceeded: quota vision allows 6 MB of 10 MB)" in line
