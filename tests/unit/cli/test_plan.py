"""`tdcs plan`: what would become of a job, and what it says to files and rights that do not do."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.support.kube.api_stand_in import ApiStandIn

from tdcs.cli.main import main
from tdcs.model.kube_objects import Object

GPU = "nvidia.com/gpu"
GB = 10**9
NOW = "2026-01-01T00:00:00Z"
CAPACITY = 100 * GB


def node(name: str, *, gpus: int = 4) -> Object:
    sizes = {GPU: str(gpus), "cpu": "32", "memory": "256Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": {"allocatable": sizes}}


def dataset(
    name: str, *, size: int, nodes: Mapping[str, int], namespace: str = "team", **spec: Any
) -> Object:
    """A Dataset of so many bytes, of which these nodes hold some."""
    held = sum(nodes.values())
    true = [
        {"type": kind, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": NOW}
        for kind in ("Mounted", "Ready")
    ]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": NOW},
        "spec": {"source": {"uri": f"s3://bucket/{name}", "secretRef": {"name": "keys"}}, **spec},
        "status": {
            "totalBytes": size,
            "totalFiles": 1_000_000,
            "cachedBytes": held,
            "cachedRatio": held / size,
            "loadedRatio": held / size,
            "loadedBytes": held,
            "wantedBytes": size,
            "loadSeconds": 100,
            "mountPath": f"/datasets/{name}",
            "claimName": name,
            "conditions": true,
            "copies": [{"id": "0", "nodes": [{"name": k, "bytes": v} for k, v in nodes.items()]}],
        },
    }


def pod(name: str, *, on: str, gpus: int, claim: str = "") -> Object:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    container = {"name": "m", "resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": on, "containers": [container], "volumes": volumes},
        "status": {"phase": "Running"},
    }


def cluster(
    *, nodes: Sequence[Object], datasets: Sequence[Object], pods: Sequence[Object] = ()
) -> dict[str, Any]:
    """The objects of a cluster with a cache on each node."""
    workers = [
        {"node": obj["metadata"]["name"], "state": "Ready", "capacityBytes": CAPACITY, "usedBytes": 0}
        for obj in nodes
    ]
    cache = {
        "metadata": {"name": "default", "namespace": "tdcs-system"},
        "spec": {},
        "status": {"workers": workers},
    }
    return {
        "nodes": nodes,
        "datasets": datasets,
        "pods": pods,
        "cacheclusters": [cache],
        "trainingjobs": [],
        "deployments": [operator()],
    }


def operator(*options: str) -> Object:
    """The Deployment of an operator with these options next to its usual ones."""
    usual = ("operator", "--namespace=tdcs-system", "--health-port=8080", "--lease=tdcs-operator")
    container = {"name": "operator", "args": [*usual, *options]}
    labels = {"app.kubernetes.io/component": "operator"}
    return {
        "metadata": {"name": "tdcs-operator", "namespace": "tdcs-system", "labels": labels},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def job(*, workers: float = 2, data: str = "pictures", gpus: int = 1, **spec: Any) -> Object:
    container = {"name": "main", "image": "train", "resources": {"limits": {GPU: gpus}}}
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "TrainingJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {
            "workers": workers,
            "datasets": [{"name": data, "mountPath": "/data"}],
            "replicaSpecs": [{"name": "Worker", "template": {"spec": {"containers": [container]}}}],
            **spec,
        },
    }


def planned(
    folder: Path, objects: Mapping[str, Any], planned_object: Object, *options: str, **rights: Any
) -> tuple[Result, ApiStandIn]:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(planned_object), encoding="utf-8")
    with ApiStandIn(objects, **rights) as server:
        config = str(server.kubeconfig(folder))
        return CliRunner().invoke(main, ["plan", str(file), f"--kubeconfig={config}", *options]), server


def answer_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


PICTURES = dataset("pictures", size=60 * GB, nodes={"a": 40 * GB, "b": 20 * GB})
SMALL = cluster(nodes=[node("a"), node("b"), node("c")], datasets=[PICTURES])


def test_a_job_that_fits_is_planned_onto_the_nodes_with_its_data(tmp_path: Path) -> None:
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json")[0])

    assert answer["starts_now"]
    assert answer["turn"]["message"] == "all 2 pods fit at once"
    # a holds the most, and there is room for both.
    assert [(row["pod"], row["node"], row["score"]) for row in answer["pods"]] == [
        ("train-worker-0", "a", 10),
        ("train-worker-1", "a", 10),
    ]
    assert (answer["leaving"], answer["load_bytes"], answer["unknown"]) == ([], 0, [])


def test_a_node_without_room_sends_pods_to_the_next_best(tmp_path: Path) -> None:
    objects = {**SMALL, "pods": [pod("other", on="a", gpus=3)]}
    answer = answer_of(planned(tmp_path, objects, job(), "--json")[0])
    assert [row["node"] for row in answer["pods"]] == ["a", "b"]


def test_a_job_without_room_says_what_it_waits_for_as_the_queue_does(tmp_path: Path) -> None:
    objects = {**SMALL, "pods": [pod(f"p-{name}", on=name, gpus=4) for name in "ab"]}
    result = planned(tmp_path, objects, job(workers=6))[0]

    assert "TrainingJob team/train: it would wait" in result.output
    assert (
        "needs 6 nvidia.com/gpu at once, 4 nvidia.com/gpu free on the 3 nodes that its 6 pods may"
        in result.output
    )
    assert "position 1 in the queue" in result.output
    assert result.output.count("no node has room for it") == 2


def test_a_job_queues_behind_jobs_that_wait_and_next_to_those_that_were_admitted(tmp_path: Path) -> None:
    queued = job(workers=11, data="pictures")
    queued["metadata"] = {
        "name": "other", "namespace": "team", "uid": "u", "generation": 1, "creationTimestamp": NOW,
    }  # fmt: skip
    conditions = [{"type": "DataReady", "status": "True"}, {"type": "Admitted", "status": "True"}]
    objects = {**SMALL, "trainingjobs": [{**queued, "status": {"conditions": conditions}}]}
    answer = answer_of(planned(tmp_path, objects, job(), "--json")[0])
    assert answer["turn"]["reason"] == "NotEnoughRoom"

    waits = {**queued, "spec": job(workers=12)["spec"], "status": {"conditions": conditions[:1]}}
    answer = answer_of(planned(tmp_path, {**SMALL, "trainingjobs": [waits]}, job(), "--json")[0])
    assert (answer["turn"]["yes"], answer["turn"]["reason"]) == (False, "NotEnoughRoom")


def test_idle_data_that_would_leave_for_the_jobs_data_is_named(tmp_path: Path) -> None:
    idle = dataset("old", size=90 * GB, nodes={"a": 90 * GB}, namespace="others")
    large = dataset("pictures", size=80 * GB, nodes={})
    objects = cluster(nodes=[node("a")], datasets=[idle, large])
    answer = answer_of(planned(tmp_path, objects, job(), "--json")[0])

    (candidate,) = answer["leaving"]
    assert candidate["datasets"] == ["others/old"]
    # 98 GB of the node can be granted: what the job's data leaves of that stays.
    assert 70 * GB < candidate["bytes"] < 74 * GB
    assert not candidate["all"]
    assert abs(answer["load_bytes"] - 80 * GB) < GB
    assert [row["node"] for row in answer["pods"]] == ["a", "a"]
    assert "others/old: 67.1 GiB, the rest stays" in planned(tmp_path, objects, job())[0].output


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ((), {"a", "c"}),
        (("--topology-label=rack",), {"a", "b"}),
        (("--topology-label=",), {"a", "b"}),
    ],
    ids=["zones", "racks", "neither"],
)
def test_data_that_is_to_come_is_planned_into_one_zone_or_rack_as_the_operator_places_it(
    tmp_path: Path, options: Sequence[str], nodes: set[str]
) -> None:
    places = {"a": ("x", "r"), "b": ("y", "r"), "c": ("x", "s")}
    nodes_of_cluster = [node(name) for name in places]
    for obj, (zone, rack) in zip(nodes_of_cluster, places.values(), strict=True):
        obj["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone, "rack": rack}
    smaller = dataset("others", size=10 * GB, nodes={"c": 10 * GB})
    large = dataset("pictures", size=150 * GB, nodes={})
    objects = cluster(nodes=nodes_of_cluster, datasets=[smaller, large])
    objects["deployments"] = [operator(*options)]
    answer = answer_of(planned(tmp_path, objects, job(), "--json")[0])
    assert {pod["node"] for pod in answer["pods"]} == nodes, answer


def test_data_in_use_does_not_leave_for_a_job(tmp_path: Path) -> None:
    used = dataset("used", size=90 * GB, nodes={"a": 90 * GB})
    objects = cluster(
        nodes=[node("a")],
        datasets=[used, dataset("pictures", size=80 * GB, nodes={})],
        pods=[pod("reader", on="a", gpus=1, claim="used")],
    )
    answer = answer_of(planned(tmp_path, objects, job(), "--json")[0])
    assert answer["leaving"] == []
    assert answer["load_bytes"] < 9 * GB


SPEEDS = ("--epochs", "10", "--images-per-second-per-gpu", "5000")


def test_how_long_it_runs_follows_from_what_is_cached_and_the_last_load(tmp_path: Path) -> None:
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json", *SPEEDS)[0])["forecast"]
    # A million files at 10,000 a second are 100 s an epoch; the source gave 60 GB in 100 s.
    assert answer["seconds"] == pytest.approx(1000, rel=0.01)
    assert "as in the last load" in answer["assumed"][0]
    slow = ("--remote-bytes-per-second", "60M")
    half = dataset("pictures", size=60 * GB, nodes={"a": 30 * GB})
    objects = cluster(nodes=[node("a")], datasets=[half])
    answer = answer_of(planned(tmp_path, objects, job(), "--json", *SPEEDS, *slow)[0])["forecast"]
    assert answer["direct_seconds"] == pytest.approx(10_000, rel=0.01)
    # Half of the first epoch comes from the source, at a sixtieth of a gigabyte a second.
    assert answer["seconds"] == pytest.approx((answer["cold_seconds"] + answer["cached_seconds"]) / 2)
    assert answer["cached_seconds"] == pytest.approx(1000, rel=0.01)


def test_without_a_measured_load_the_plan_asks_for_the_rate_of_the_source(tmp_path: Path) -> None:
    shared = dataset("pictures", size=60 * GB, nodes={"a": 60 * GB})
    del shared["status"]["loadSeconds"]
    objects = cluster(nodes=[node("a")], datasets=[shared])
    answer = answer_of(planned(tmp_path, objects, job(), "--json", *SPEEDS)[0])
    assert answer["forecast"] is None
    (line,) = answer["unknown"]
    assert line.startswith("how long it would run: give --remote-bytes-per-second, such as 180M")
    assert "no load of Dataset pictures was measured" in line
    rate = ("--remote-bytes-per-second", "180M")
    assert answer_of(planned(tmp_path, objects, job(), "--json", *SPEEDS, *rate)[0])["forecast"]


def test_how_long_it_runs_is_not_guessed_without_the_cache(tmp_path: Path) -> None:
    hidden = planned(tmp_path, SMALL, job(), "--json", *SPEEDS, forbidden=frozenset({"cacheclusters"}))[0]
    answer = answer_of(hidden)
    assert answer["forecast"] is None
    assert "how long it would run: what the cache would hold of its data is unknown" in answer["unknown"]


def test_apply_creates_the_job_with_its_prediction(tmp_path: Path) -> None:
    result, server = planned(tmp_path, SMALL, job(), "--apply", *SPEEDS)

    (created,) = server.objects("trainingjobs")
    assert created["metadata"]["annotations"] == {"tdcs.io/predicted-seconds": "1000"}
    assert created["spec"] == job()["spec"]
    assert "TrainingJob team/train was created" in result.output
    assert not planned(tmp_path, SMALL, job())[1].objects("trainingjobs")


def test_an_unknown_dataset_is_said_and_nothing_is_guessed_of_it(tmp_path: Path) -> None:
    result = planned(tmp_path, SMALL, job(data="nowhere"), *SPEEDS)[0]
    assert result.exit_code == 0
    assert "there is no Dataset nowhere in namespace team; create it" in result.output
    assert "how long it would run: the size of its data is not known yet" in result.output


def test_without_rights_on_nodes_or_other_namespaces_it_says_less(tmp_path: Path) -> None:
    hidden = planned(tmp_path, SMALL, job(), forbidden=frozenset({"nodes"}))[0]
    assert "where its pods would be: you may not list the nodes" in hidden.output
    partly = planned(tmp_path, SMALL, job(), own_namespace_only=frozenset({"datasets"}))[0]
    assert "what Datasets of other namespaces would lose: you may not list them" in partly.output
    assert "train-worker-0: a, score 10 of 10" in partly.output


def test_what_may_not_be_listed_leaves_answers_unknown_and_not_no(tmp_path: Path) -> None:
    turn = planned(tmp_path, SMALL, job(), forbidden=frozenset({"nodes"}))[0].output
    assert "TrainingJob team/train: whether it would wait is unknown" in turn
    assert "its turn: unknown, you may not list nodes" in turn
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json", forbidden=frozenset({"nodes"}))[0])
    assert (answer["starts_now"], answer["turn"]["yes"]) == (None, None)
    # What holds whatever the queue says is said.
    later = job(runPolicy={"suspend": True})
    suspended = planned(tmp_path, SMALL, later, forbidden=frozenset({"nodes"}))[0].output
    assert "TrainingJob team/train: it would wait" in suspended


def leaves(text: str) -> list[str]:
    """The lines under this title."""
    return text.partition("What would leave the cache\n")[2].partition("\n\n")[0].splitlines()


def test_what_would_leave_is_unknown_where_the_cache_or_other_datasets_are(tmp_path: Path) -> None:
    hidden = planned(tmp_path, SMALL, job(), forbidden=frozenset({"cacheclusters"}))[0].output
    assert leaves(hidden) == ["  unknown"]
    partly = planned(tmp_path, SMALL, job(), own_namespace_only=frozenset({"datasets"}))[0].output
    assert leaves(partly) == ["  unknown"]
    assert leaves(planned(tmp_path, SMALL, job())[0].output) == ["  nothing"]


def test_a_pod_that_no_node_may_run_says_why_and_not_that_there_is_no_room(tmp_path: Path) -> None:
    pinned = job()
    pinned["spec"]["replicaSpecs"][0]["template"]["spec"]["nodeName"] = "worker9"
    output = planned(tmp_path, SMALL, pinned)[0].output
    assert "train-worker-0: there is no node worker9, which its pods name (nodeName)" in output
    assert "no node has room for it" not in output
    assert "train-worker-0: no node has room for it" in planned(tmp_path, SMALL, job(gpus=5))[0].output


def test_without_rights_on_the_datasets_there_is_no_plan_and_the_right_is_named(tmp_path: Path) -> None:
    result = planned(tmp_path, SMALL, job(), forbidden=frozenset({"datasets"}))[0]
    assert result.exit_code == 1
    assert "ask for the right to list datasets.tdcs.io in namespace team" in result.output


LOTS = {"spec": {"containers": [{"name": "main", "image": "x", "resources": "lots"}]}}
"""A template with an amount that is none."""


def test_a_job_that_exists_is_explained_by_another_command(tmp_path: Path) -> None:
    objects = {**SMALL, "trainingjobs": [job()]}
    result = planned(tmp_path, objects, job())[0]
    assert result.exit_code == 1
    assert (
        "TrainingJob team/train exists already: tdcs explain job train -n team says how it is"
        in result.output
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\napiVersion: v1\n", "holds Pod, and no TrainingJob"),
        ("", "holds no Kubernetes object, and no TrainingJob"),
        ("a: [", "is not YAML"),
        ("\xff".encode("latin-1"), "is no text in UTF-8"),
        ("[" * 1000, "is not YAML"),
        (yaml.safe_dump_all([job(), job()]), "holds 2 TrainingJobs"),
        (yaml.safe_dump({**job(), "apiVersion": "v1"}), "apiVersion is v1; write tdcs.io/v1alpha2"),
        (yaml.safe_dump({**job(), "metadata": {"generateName": "x"}}), "metadata.name is ''"),
        (yaml.safe_dump({**job(), "metadata": {"name": "a" * 51}}), "at most 50 lower-case letters"),
        (yaml.safe_dump(job(workers=0.5)), "spec.workers: "),
        (yaml.safe_dump({**job(), "spec": None}), "spec: Input should be an object; correct these fields"),
        (
            yaml.safe_dump({**job(), "spec": {"replicaSpecs": [{"name": "Worker", "template": LOTS}]}}),
            "spec.replicaSpecs[0].template.spec.containers[0].resources: Input should be an object; correct",
        ),
    ],
)
def test_a_file_without_one_good_job_is_refused_with_a_sentence(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = CliRunner().invoke(main, ["plan", str(file)])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--warm-seconds", "9"], "give --epochs as well"),
        (["--epochs", "2"], "give either --images-per-second-per-gpu or --warm-seconds"),
        (["--epochs", "2", "--warm-seconds", "9", "--images-per-second-per-gpu", "1"], "give either"),
        (["--epochs", "2", "--warm-seconds", "-9"], "--warm-seconds must be above zero"),
        (["--remote-bytes-per-second", "18 MBs", *SPEEDS], "--remote-bytes-per-second must be a number, got"),
        (
            ["--nic-bytes-per-second", "0", *SPEEDS],
            "--nic-bytes-per-second must be above zero, got '0'; leave",
        ),
        (["-n", "other"], "the file's namespace is team, and --namespace is other"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    result = planned(tmp_path, SMALL, job(), *options)[0]
    assert result.exit_code == 2
    assert message in result.output


REFUSED: dict[str, tuple[int, str]] = {
    "a rule of the definition": (
        422,
        'TrainingJob.tdcs.io "train" is invalid: spec: one role Worker is needed',
    ),
    "a policy": (
        403,
        "trainingjobs.tdcs.io \"train\" is forbidden: ValidatingAdmissionPolicy 'x' denied request",
    ),
    "an unknown field": (400, 'strict decoding error: unknown field "spec.wokers"'),
    "an absent namespace": (404, 'namespaces "team" not found'),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_the_api_server_would_refuse_is_refused_in_its_words(tmp_path: Path, why: str) -> None:
    result, server = planned(tmp_path, SMALL, job(), refusal=REFUSED[why])
    assert result.exit_code == 2
    assert f"the API server refuses TrainingJob team/train: {REFUSED[why][1]}" in result.output
    assert not server.objects("trainingjobs")


def test_a_plan_writes_nothing_without_apply(tmp_path: Path) -> None:
    result, server = planned(tmp_path, SMALL, job(), "--json")
    assert answer_of(result)["created"] is False
    assert not server.objects("trainingjobs")


def test_who_may_not_create_jobs_gets_a_plan_that_says_what_was_not_checked(tmp_path: Path) -> None:
    sentence = (
        'trainingjobs.tdcs.io is forbidden: User "u" cannot create resource "trainingjobs" in API group'
    )
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json", refusal=(403, sentence))[0])
    assert answer["unknown"] == [
        "whether the API server takes this job: you may not create TrainingJobs in namespace team"
    ]


NODE_NAEM = (
    "failed to create typed patch object (team/train-worker; batch/v1, Kind=Job): "
    ".spec.template.spec.nodeNaem: field not declared in schema"
)


def test_the_jobs_that_the_operator_would_make_are_tried_as_they_would_be_applied(tmp_path: Path) -> None:
    result, server = planned(tmp_path, SMALL, job(), "--json")
    assert answer_of(result)["unknown"] == []
    (applied,) = server.applied
    assert (applied["kind"], applied["metadata"]["name"], applied["spec"]["completions"]) == (
        "Job",
        "train-worker",
        2,
    )
    assert "ownerReferences" not in applied["metadata"]
    assert applied["spec"]["suspend"] is True


def test_a_job_with_a_template_that_makes_no_valid_job_is_refused_by_role_and_field(tmp_path: Path) -> None:
    result, server = planned(tmp_path, SMALL, job(), "--apply", apply_refusal=(500, NODE_NAEM))
    assert result.exit_code == 2
    assert (
        "the API server refuses the Job of role Worker: template.spec.nodeNaem: no such field; correct "
        "spec.replicaSpecs: the TrainingJob would fail for good (ChildRefused)"
        in " ".join(result.output.split())
    )
    assert not server.objects("trainingjobs")


def test_a_job_name_that_is_taken_is_said_before(tmp_path: Path) -> None:
    existing = {"metadata": {"name": "train-worker", "namespace": "team"}, "spec": {}}
    result = planned(tmp_path, {**SMALL, "jobs": [existing]}, job())[0]
    assert result.exit_code == 2
    assert "Job team/train-worker exists and was not made for TrainingJob train" in result.output


def test_who_may_not_make_jobs_reads_that_their_templates_were_not_checked(tmp_path: Path) -> None:
    detail = 'jobs.batch "train-worker" is forbidden: User "u" cannot patch resource "jobs" in API group'
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json", apply_refusal=(403, detail))[0])
    sentence = (
        "whether the API server takes its Jobs: you may not get, create and patch Jobs in namespace team"
    )
    assert answer["unknown"] == [sentence]
    assert answer["starts_now"] is True


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (403, "exceeded quota: count/jobs.batch=1"),
        (400, 'admission webhook "gate" denied the request: not you'),
        (500, 'failed calling webhook "gate": deadline exceeded'),
    ],
)
def test_a_refusal_of_this_user_alone_or_for_now_leaves_the_start_unknown(
    tmp_path: Path, code: int, detail: str
) -> None:
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json", apply_refusal=(code, detail))[0])
    (line,) = answer["unknown"]
    assert line.startswith("whether the API server takes its Jobs from the operator")
    assert detail in line
    assert answer["starts_now"] is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["plan", str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert "none.yaml: cannot be read (No such file or directory)" in result.output


def test_of_a_job_in_a_queue_of_kueue_the_plan_says_that_kueue_decides(tmp_path: Path) -> None:
    labelled = job()
    labelled["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    objects = {**SMALL, "workloads": [], "deployments": [operator("--kueue")]}
    answer = answer_of(planned(tmp_path, objects, labelled, "--json")[0])
    assert (answer["turn"]["yes"], answer["turn"]["reason"]) == (None, "WaitsInKueue")
    assert "LocalQueue gpu" in answer["turn"]["message"]
    assert answer["starts_now"] is None


def test_a_job_that_waits_in_kueue_stands_before_nobody_in_the_own_queue(tmp_path: Path) -> None:
    queued = job(workers=11)
    queued["metadata"] = {
        "name": "other", "namespace": "team", "uid": "u", "generation": 1, "creationTimestamp": NOW,
        "labels": {"kueue.x-k8s.io/queue-name": "gpu"},
    }  # fmt: skip
    waits = {**queued, "status": {"conditions": [{"type": "DataReady", "status": "True"}]}}
    objects = {**SMALL, "workloads": [], "trainingjobs": [waits], "deployments": [operator("--kueue")]}
    assert answer_of(planned(tmp_path, objects, job(), "--json")[0])["turn"]["yes"]
