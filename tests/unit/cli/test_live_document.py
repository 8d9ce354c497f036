"""The rows of the live views."""

import io
import re
from typing import Any

import pytest
from tests.support.kube.live_world import cluster

from tdcs.cli.console import Console
from tdcs.cli.explain.live_pods import kept_pod, pod_row
from tdcs.cli.live.document import (
    DatasetRow,
    Document,
    JobRow,
    LiveObjects,
    NodeRow,
    changes,
    document,
    trimmed_node,
)
from tdcs.cli.live.terminal import LiveScreen, shared_out
from tdcs.cli.live.watches import Contact
from tdcs.model.kube_objects import Object


def dataset(name: str = "pictures", *, cluster_name: str = "default", **status: Any) -> Object:
    spec = {"cacheClusterRef": {"name": cluster_name}}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": status}


def held_fields(**nodes: int) -> dict[str, Any]:
    listed = [{"name": name, "bytes": size} for name, size in nodes.items()]
    return {"totalBytes": 100, "copies": [{"id": "0", "nodes": listed}]}


def node(name: str, *, ready: str = "True", gpus: str = "4", **spec: Any) -> Object:
    conditions = [{"type": "Ready", "status": ready}]
    whole = {
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": conditions, "images": [1]},
    }
    return trimmed_node(whole)


def pod(
    name: str,
    *,
    node: str = "",
    claims: tuple[str, ...] = (),
    owner: str = "",
    job: str = "",
    phase: str = "Running",
    waits: str = "",
) -> Object:
    conditions = [{"type": "PodScheduled", "status": "False", "message": waits}] if waits else []
    owners = [{"kind": "Job", "name": owner, "controller": True}] if owner else []
    labels = {"tdcs.io/training-job": job} if job else {}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels, "ownerReferences": owners},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            "volumes": [{"persistentVolumeClaim": {"claimName": claim}} for claim in claims],
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def job(name: str, *, priority: int = 0, created: str = "2026-05-01T10:00:00Z", **status: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": created},
        "spec": {"workers": 2, "datasets": [{"name": "pictures"}], "replicaSpecs": [{"name": "Worker"}]},
        "status": status,
    }


def rows(shown_document: Document, section: str) -> dict[str, Any]:
    return dict(shown_document[section])  # type: ignore[index]


def test_a_node_shows_what_it_holds_and_what_runs_there() -> None:
    shown_document = document(
        LiveObjects(
            nodes=[node("a"), node("b", ready="Unknown", unschedulable=True)],
            pods=[
                pod_row(pod("p0", node="a", job="train")),
                pod_row(pod("other", node="a")),
                pod_row(pod("done", node="a", job="train", phase="Succeeded")),
            ],
            datasets=[dataset(**held_fields(a=60, c=40)), dataset("texts", **held_fields(a=70))],
            clusters=[
                {
                    "metadata": {"name": "default"},
                    "status": {
                        "workers": [{"node": "a", "state": "Ready", "capacityBytes": 500, "usedBytes": 130}]
                    },
                }
            ],
        )
    )
    first: NodeRow = rows(shown_document, "nodes")["a"]
    assert (first.gpus, first.gpus_used) == (4, 2)
    assert first.held == (("team/texts", 70), ("team/pictures", 60))
    assert first.pods == (("p0", "TrainingJob/team/train"),)
    assert (first.worker, first.used, first.capacity) == ("Ready", 130, 500)
    second: NodeRow = rows(shown_document, "nodes")["b"]
    assert (second.ready, second.cordoned) == (False, True)
    assert set(rows(shown_document, "nodes")) == {"a", "b"}, (
        "a node that is gone is not shown, though a status names it"
    )


def test_blocks_that_two_datasets_share_count_once() -> None:
    shared = {"mountPath": "/datasets/0a", **held_fields(a=60)}
    shown_document = document(
        LiveObjects(
            nodes=[node("a")],
            datasets=[
                dataset("texts", mountPath="/datasets/0b", **held_fields(a=30)),
                dataset("the-same", **shared),
                dataset("pictures", **shared),
                dataset("elsewhere", cluster_name="second", **shared),
            ],
        )
    )
    first: NodeRow = rows(shown_document, "nodes")["a"]
    assert first.held == (
        ("team/elsewhere", 60),
        ("team/pictures", 60),
        ("team/texts", 30),
        ("team/the-same", 0),
    ), "the sum of what a node holds is what is there"


def test_without_the_right_to_list_nodes_those_with_data_are_shown() -> None:
    shown_document = document(
        LiveObjects(datasets=[dataset(**held_fields(a=60, c=0))], limits={"nodes": "you may not list nodes"})
    )
    assert rows(shown_document, "nodes")["a"].gpus is None
    assert set(rows(shown_document, "nodes")) == {"a"}
    assert rows(shown_document, "limits")["nodes"].why == "you may not list nodes"


def test_pods_of_others_that_mount_a_datasets_claim_are_jobs_too() -> None:
    shown_document = document(
        LiveObjects(
            pods=[
                pod_row(pod("w-0", node="a", claims=("pictures",), owner="train")),
                pod_row(pod("w-1", claims=("pictures",), owner="train", waits="0/9 nodes are available")),
                pod_row(pod("alone", node="b", claims=("pictures", "tmp"))),
                pod_row(pod("stranger", node="b", claims=("tmp",))),
            ],
            datasets=[dataset()],
        )
    )
    jobs: dict[str, JobRow] = rows(shown_document, "jobs")
    assert set(jobs) == {"Job/team/train", "Pod/team/alone"}
    first = jobs["Job/team/train"]
    assert (first.state, first.ready, first.wanted, first.nodes) == ("Running", 1, 2, (("a", 1),))
    assert first.message == "0/9 nodes are available"
    assert first.datasets == ("team/pictures",)


def test_a_pod_that_has_a_node_and_does_not_run_yet_is_starting() -> None:
    def look(*phases: str) -> JobRow:
        pods = [
            pod_row(pod(f"w-{number}", node="a", claims=("pictures",), owner="train", phase=phase))
            for number, phase in enumerate(phases)
        ]
        row: JobRow = rows(document(LiveObjects(pods=pods, datasets=[dataset()])), "jobs")["Job/team/train"]
        return row

    assert (look("Pending", "Pending").state, look("Pending", "Pending").ready) == ("Starting", 0)
    assert (look("Running", "Pending").state, look("Running", "Pending").ready) == ("Running", 1)
    ended = look("Succeeded", "Succeeded")
    assert (ended.state, ended.ready, ended.wanted) == ("Succeeded", 0, 2)


def test_a_job_that_has_succeeded_does_not_show_none_of_its_pods() -> None:
    pods = [{"name": "Worker", "ready": 0, "succeeded": 2}]
    shown_document = document(LiveObjects(jobs=[job("done", state="Succeeded", replicaStatuses=pods)]))
    row: JobRow = rows(shown_document, "jobs")["TrainingJob/team/done"]
    assert row.outcome == "2 of 2 succeeded"


def test_jobs_that_wait_have_a_place_in_the_order_in_which_they_came() -> None:
    shown_document = document(
        LiveObjects(
            jobs=[
                job("late", state="Queued", created="2026-05-01T11:00:00Z"),
                job("early", state="Waiting", message="its data is not there yet"),
                job("held", state="Suspended"),
                job("runs", state="Running", replicaStatuses=[{"name": "Worker", "ready": 2}]),
            ]
        )
    )
    places = {row.name: row.position for row in rows(shown_document, "jobs").values()}
    assert places == {"early": 1, "late": 2, "held": 0, "runs": 0}
    runs: JobRow = rows(shown_document, "jobs")["TrainingJob/team/runs"]
    assert (runs.ready, runs.wanted, runs.datasets) == (2, 2, ("team/pictures",))


def test_jobs_that_the_operators_queue_leaves_out_have_no_place_in_it() -> None:
    shown_document = document(
        LiveObjects(
            jobs=[
                job("huge", state="Queued", reason="NoNodeIsLargeEnough", created="2026-05-01T10:00:00Z"),
                job("paused", state="Queued", reason="NotAllPodsPlaced", created="2026-05-01T10:00:00Z"),
                job("other", state="Queued", reason="WaitsInKueue", created="2026-05-01T10:00:00Z"),
                job("typo", state="Waiting", reason="DatasetNotFound", created="2026-05-01T10:00:00Z"),
                job("next", state="Queued", reason="NotEnoughRoom", created="2026-05-01T11:00:00Z"),
            ]
        )
    )
    places = {row.name: row.position for row in rows(shown_document, "jobs").values()}
    assert places == {"huge": 0, "paused": 0, "other": 0, "typo": 1, "next": 2}


def test_a_dataset_shows_how_far_it_is_and_why_it_is_not_ready() -> None:
    ready = {"type": "Ready", "status": "False", "message": "it is being loaded"}
    shown_document = document(
        LiveObjects(
            datasets=[
                dataset(
                    state="Loading", wantedBytes=50, loadedBytes=20, conditions=[ready], **held_fields(a=9)
                )
            ]
        )
    )
    row: DatasetRow = rows(shown_document, "datasets")["team/pictures"]
    assert (row.state, row.wanted, row.loaded, row.nodes) == ("Loading", 50, 20, 1)
    assert row.message == "it is being loaded"


@pytest.mark.parametrize("copies", ["oops", [{"id": "0", "nodes": "many"}], [7]])
def test_a_status_that_cannot_be_read_hides_no_other_row(copies: Any) -> None:
    shown_document = document(
        LiveObjects(datasets=[dataset("odd", copies=copies), dataset(**held_fields(a=1))])
    )
    assert set(rows(shown_document, "datasets")) == {"team/odd", "team/pictures"}
    assert rows(shown_document, "nodes")["a"].held == (("team/pictures", 1),)


def test_only_rows_that_changed_are_sent_and_those_that_are_gone_are_said() -> None:
    before = document(
        LiveObjects(datasets=[dataset(**held_fields(a=1)), dataset("texts")], nodes=[node("a")])
    )
    equal = document(LiveObjects(datasets=[dataset(**held_fields(a=1)), dataset("texts")], nodes=[node("a")]))
    assert changes(before, equal) == {}
    after = document(LiveObjects(datasets=[dataset(**held_fields(a=2))], nodes=[node("a")]))
    changed = changes(before, after)
    assert set(changed) == {"datasets", "nodes"}
    assert changed["datasets"] == {"team/texts": None}
    assert changed["nodes"]["a"].held == (("team/pictures", 2),)  # type: ignore[union-attr]


def test_little_is_kept_of_a_pod() -> None:
    reduced = kept_pod(pod("p", node="a"))
    assert set(reduced) == {"metadata", "row"}


def screen_of(
    world: LiveObjects, *, lines: int | None, contact: Contact | None = None, width: int = 160
) -> str:
    console = Console(file=io.StringIO(), width=width, height=50)
    console.print(LiveScreen(document(world), contact=contact or Contact(), lines=lines))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def large() -> LiveObjects:
    objects = cluster(nodes=40, jobs=60)
    return LiveObjects(
        nodes=[trimmed_node(obj) for obj in objects["nodes"]],
        pods=[pod_row(obj) for obj in objects["pods"]],
        clusters=objects["cacheclusters"],
        datasets=objects["datasets"],
        jobs=objects["trainingjobs"],
    )


@pytest.mark.parametrize("lines", [16, 30, 60])
def test_the_terminal_shows_what_fits_and_counts_the_rest(lines: int) -> None:
    text = screen_of(large(), lines=lines)
    assert text.count("\n") <= lines
    assert "of 60)" in text
    assert "running" in text


WIDTHS = [80, 100, 132, 180]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_of_a_terminal_hides_a_name_a_figure_or_a_reason(width: int) -> None:
    text = screen_of(large(), lines=None, width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    (jobs, data, nodes) = (
        next(line.split() for line in lines if line.startswith(f"{head} "))
        for head in ("Job", "Dataset", "Node")
    )
    assert jobs == ["Job", "State", "Pods", "Locality", "Where,", "or", "why", "not"]
    assert data == ["Dataset", "State", "There", "Size", "Rate", "Nodes", "Jobs"]
    assert nodes == ["Node", "State", "GPUs", "Cache", "Holds", "Runs"]
    first = next(line for line in lines if line.startswith("gpu-000 "))
    assert re.match(r"gpu-000 +(ready|not ready) +\d of 8 +[\d.]+ [GT]iB ", first), first
    queued = [line for line in lines if "Queued" in line]
    assert all("its pods need" in line for line in queued)
    assert queued


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_leave_room_for_the_figures(width: int) -> None:
    name = "a-name-that-is-about-as-long-as-names-in-a-real-cluster-are-0123456789"
    world = LiveObjects(
        nodes=[node(name)],
        datasets=[dataset(name, state="Ready", **held_fields(**{name: 40}))],
        jobs=[job(name, state="Running", replicaStatuses=[{"name": "Worker", "ready": 2}])],
    )
    text = screen_of(world, lines=None, width=width)
    assert "0 of 4" in text
    assert "2 of 2" in text
    assert "40 bytes" in text
    assert "Running" in text
    assert max(map(len, text.splitlines())) <= width


def test_nodes_that_need_a_look_come_first() -> None:
    world = LiveObjects(
        nodes=[node("a"), node("b"), node("c", ready="Unknown")], datasets=[dataset(**held_fields(b=9))]
    )
    text = screen_of(world, lines=None)
    places = [text.index(f"\n{name} ") for name in ("c", "b", "a")]
    assert places == sorted(places)
    assert "not ready" in text


def test_a_job_that_starts_is_not_counted_as_running() -> None:
    states = ("Running", "Starting", "Restarting", "Queued")
    text = screen_of(LiveObjects(jobs=[job(state.lower(), state=state) for state in states]), lines=None)
    assert "1 running, 2 starting, 1 waiting" in text
    text = screen_of(LiveObjects(jobs=[job("one", state="Running")]), lines=None)
    assert "1 running, 0 waiting" in text


def test_without_an_end_the_terminal_shows_everything() -> None:
    text = screen_of(large(), lines=None)
    assert "of 60)" not in text
    assert text.count("gpu-0") >= 40
    assert "imagenet" in text


def test_the_terminal_says_what_is_missing_and_that_it_is_old() -> None:
    world = LiveObjects(limits={"nodes": "you may not list nodes"})
    text = screen_of(
        world, lines=None, contact=Contact(lost_since=1.0, problem="cannot get: connection refused")
    )
    assert "The API server does not answer, this is old: cannot get: connection refused" in text
    assert "Not everything is shown: you may not list nodes" in text
    assert "none" in text


@pytest.mark.parametrize(
    ("room", "lengths", "lines"),
    [
        (None, (9, 9), [9, 9]),
        (20, (9, 9), [9, 9]),
        (12, (9, 2, 9), [5, 2, 5]),
        (9, (0, 50, 50), [0, 4, 4]),
        (3, (9, 9, 9), [1, 1, 1]),
    ],
)
def test_lines_are_shared_out_fairly(room: int | None, lengths: tuple[int, ...], lines: list[int]) -> None:
    assert shared_out(room, *lengths) == lines
