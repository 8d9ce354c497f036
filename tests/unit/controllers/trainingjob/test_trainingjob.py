"""When a job may start, what its pods get, and what its status says."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.controllers.builders import JOB_OBJECT, NOW, dataset, job_spec

from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import DatasetUse, Role, RunPolicy, TrainingJobSpec
from tdcs.api.trainingjob_status import PodPlacement, TrainingJobStatus
from tdcs.controllers.humanize import explain_invalid
from tdcs.controllers.trainingjob import children, report
from tdcs.controllers.trainingjob import decision as decisions
from tdcs.controllers.trainingjob.decision import Decision
from tdcs.controllers.trainingjob.observed import JobView, Observed, job_view
from tdcs.controllers.trainingjob.pods import PodView
from tdcs.controllers.trainingjob.rendezvous import tf_config
from tdcs.policy.admission import Reason

ADMITTED = TrainingJobStatus.model_validate(
    {
        "conditions": [
            {"type": "Admitted", "status": "True", "reason": "DatasetsReady", "lastTransitionTime": NOW}
        ]
    }
)

LATER = "2026-01-01T01:00:00Z"


def decided(seen: Observed, *, now: str = NOW) -> Decision:
    return decisions.decision_of(seen=seen, data=decisions.data(seen, now=now))


def reading(**readiness: Any) -> TrainingJobSpec:
    """A job that waits for its dataset as told."""
    return job_spec(datasets=[{"name": "pictures", "mountPath": "/data", "readiness": readiness}])


def seen_of(spec: TrainingJobSpec, datasets: dict[str, Dataset], **more: Any) -> Observed:
    present = frozenset(datasets)
    return Observed(
        spec=spec, known=TrainingJobStatus(), datasets=datasets, present=present, created=NOW, **more
    )


WAITING: dict[str, tuple[dict[str, Dataset], Reason]] = {
    "no such dataset": ({}, Reason.MISSING),
    "not mounted": ({"pictures": dataset(Mounted=False)}, Reason.UNREADABLE),
    "half cached": ({"pictures": dataset(cached=50)}, Reason.LOADING),
    "all cached": ({"pictures": dataset()}, Reason.READY),
    "half cached, and no more fits": ({"pictures": dataset(cached=50, Loaded=True)}, Reason.READY),
    "not to be preloaded": ({"pictures": dataset(cached=0, preload=False)}, Reason.READY),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_job_waits_for_what_will_still_come(name: str) -> None:
    datasets, reason = WAITING[name]
    decision = decided(seen_of(reading(percent=100), datasets))
    assert decision.reason is reason
    assert decision.admitted == (reason is Reason.READY)


def test_why_a_dataset_cannot_be_read_is_said_in_its_own_words() -> None:
    told = dataset(Mounted=False).model_dump(by_alias=True, mode="json")
    told["status"]["conditions"][0]["message"] = "the store answers 403"
    refused = Dataset.model_validate(told)
    decision = decided(seen_of(reading(), {"pictures": refused}))
    assert decision.message == "Dataset pictures is not mounted yet: Told: the store answers 403"
    # One that exists and does not parse is not among the datasets that can be used.
    broken = Observed(spec=reading(), known=TrainingJobStatus(), present=frozenset({"pictures"}))
    assert decided(broken).reason is Reason.UNREADABLE
    assert "it cannot be understood; its own status says which fields" in decided(broken).message


def test_by_default_a_job_starts_as_soon_as_its_dataset_can_be_read() -> None:
    assert decided(seen_of(reading(), {"pictures": dataset(cached=0)})).admitted
    assert not decided(seen_of(reading(), {"pictures": dataset(Mounted=False)})).admitted
    unbound = seen_of(reading(), {"pictures": dataset(claim="")})
    # A pod would be turned away, and wait for its next admission.
    assert decided(unbound).reason is Reason.UNREADABLE
    why = "Dataset pictures cannot be read by pods yet: its volume is not bound yet (kubectl get pvc)"
    assert decided(unbound).message == why


def test_a_job_waits_no_longer_than_its_timeout() -> None:
    seen = seen_of(reading(percent=100, timeout="1h"), {"pictures": dataset(cached=50)})
    assert decided(seen).reason is Reason.LOADING
    assert decided(seen, now=LATER).admitted
    assert decisions.patience_left(seen.spec.datasets[0], seen=seen, now=NOW) == 3600


def test_a_job_that_its_timeout_started_says_how_cold_it_started_and_goes_on_saying_so() -> None:
    spec = reading(percent=80, timeout="30m")
    first = decided(seen_of(spec, {"pictures": dataset(cached=3)}), now=LATER)
    told = "after 30m it starts with 3% of Dataset pictures cached, 80% was asked for"
    assert (first.admitted, first.data.data_ready) == (True, True)
    assert (first.data.reason, first.data.message) == (Reason.TIMED_OUT, told)
    conditions = [
        {"type": type_, "status": "True", "reason": first.reason, "message": told, "lastTransitionTime": NOW}
        for type_ in ("DataReady", "Admitted")
    ]
    for cached in (3, 60, 100):
        known = TrainingJobStatus.model_validate({"conditions": conditions})
        later = Observed(
            spec=spec,
            known=known,
            datasets={"pictures": dataset(cached=cached)},
            present=frozenset({"pictures"}),
            created=NOW,
        )
        again = decided(later, now=LATER)
        assert (again.reason, again.message) == (Reason.TIMED_OUT, told)
        assert (again.data.reason, again.data.message) == (Reason.TIMED_OUT, told)


def test_a_timeout_after_enough_was_cached_is_not_told() -> None:
    seen = seen_of(reading(percent=80, timeout="30m"), {"pictures": dataset(cached=90)})
    assert decided(seen, now=LATER).data.message == "1 dataset ready"


def test_a_dataset_that_is_being_deleted_is_not_called_missing() -> None:
    seen = Observed(
        spec=job_spec(),
        known=TrainingJobStatus(),
        present=frozenset({"pictures"}),
        deleting=frozenset({"pictures"}),
    )
    decision = decided(seen)
    assert decision.reason is Reason.DELETING
    assert "is being deleted" in decision.message
    assert "there is no" not in decision.message


def test_a_running_job_is_not_taken_back_when_its_data_goes() -> None:
    decision = decided(Observed(spec=job_spec(), known=ADMITTED, datasets={}))
    assert (decision.admitted, decision.data.data_ready) == (True, False)


def test_the_users_suspension_takes_back_even_a_running_job() -> None:
    spec = job_spec(runPolicy={"suspend": True})
    seen = Observed(spec=spec, known=ADMITTED, datasets={"pictures": dataset()})
    assert decided(seen).admitted is False
    assert report.headline(seen, decision=decided(seen), outcome=None).state == "Suspended"


def test_a_suspended_job_without_its_dataset_is_suspended_first() -> None:
    seen = Observed(spec=job_spec(runPolicy={"suspend": True}), known=TrainingJobStatus())
    found = {one.type: one for one in report.findings_of(seen, decision=decided(seen), outcome=None)}
    assert found["Suspended"].status == "True"
    assert (found["DataReady"].status, found["DataReady"].reason) == ("False", "DatasetNotFound")


def test_tf_config_is_json_once_kubelet_has_put_in_the_index() -> None:
    text = tf_config(job="train", namespace="n", spec=job_spec(), role="Worker")
    found = json.loads(text.replace("$(JOB_COMPLETION_INDEX)", "1"))
    assert found["task"] == {"type": "worker", "index": 1}
    assert found["cluster"]["worker"] == [
        "train-worker-0.train.n.svc:2222",
        "train-worker-1.train.n.svc:2222",
    ]


def test_what_the_user_wrote_into_the_template_stays() -> None:
    template = {
        "metadata": {"labels": {"app": "mine"}, "annotations": {"note": "mine"}},
        "spec": {
            "schedulerName": "mine",
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [
                {
                    "name": "main",
                    "image": "train",
                    "env": [{"name": "TF_CONFIG", "value": "{}"}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
                }
            ],
        },
    }
    spec = job_spec(roles={"Worker": {"replicas": 1, "template": template}})
    made = children.pod_template(owner=JOB_OBJECT, spec=spec)
    assert made["metadata"]["labels"]["app"] == "mine"
    assert made["metadata"]["annotations"]["note"] == "mine"
    assert made["spec"]["schedulerName"] == "mine"
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["scratch", "data-pictures"]
    container = made["spec"]["containers"][0]
    assert [entry for entry in container["env"] if entry["name"] == "TF_CONFIG"] == [
        {"name": "TF_CONFIG", "value": "{}"}
    ]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp", "/data"]
    assert container["volumeMounts"][1]["mountPropagation"] == "HostToContainer"


def test_the_default_scheduler_places_jobs_where_tdcs_has_none() -> None:
    for name, expected in (("other", "other"), ("", None)):
        job = children.job(
            owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True, scheduler_name=name
        )
        assert job["spec"]["template"]["spec"].get("schedulerName") == expected


def test_only_pods_that_read_data_are_placed_by_the_scheduler_that_asks_the_extender() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    roles = {role: {"replicas": 1, "template": template} for role in ("Worker", "Chief", "PS")}
    asked: list[Role] = ["Worker", "Chief", "PS"]
    cases: list[tuple[dict[str, Any], set[str]]] = [({}, {"Worker", "Chief"}), ({"datasets": []}, set())]
    for datasets, readers in cases:
        spec = job_spec(roles=roles, **datasets)
        for role in asked:
            pod = children.pod_template(owner=JOB_OBJECT, spec=spec, role=role)
            assert ("schedulerName" in pod["spec"]) == (role in readers)
            assert ("tdcs.io/datasets" in pod["metadata"]["annotations"]) == (role in readers)


def test_pods_carry_for_a_minute_which_nodes_they_leave_to_larger_ones() -> None:
    made = children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    now = "2026-01-01T00:00:30Z"

    def annotations(
        leave: set[str], *, live: dict[str, Any] = made, spec: TrainingJobSpec | None = None
    ) -> dict[str, str]:
        change = children.changes(
            live=live, spec=spec or job_spec(), role="Worker", suspended=False, leave=leave, now=now
        )
        template = change["spec"].get("template") or {}
        return (template.get("metadata") or {}).get("annotations") or {}

    assert json.loads(annotations({"b", "a"})["tdcs.io/leave-nodes"]) == {
        "nodes": ["a", "b"],
        "until": "2026-01-01T00:01:30Z",
    }
    assert "tdcs.io/leave-nodes" not in annotations(set())
    # The extender, which follows it, does not see the pods of mode Affinity.
    affinity = job_spec(scheduling={"mode": "Affinity"})
    assert "tdcs.io/leave-nodes" not in annotations({"a"}, spec=affinity)
    assert annotations({"a"}, live={**made, "status": {"startTime": NOW}}) == {}


def test_a_job_that_has_never_started_can_still_be_told_which_copy_to_read() -> None:
    made = children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    change = children.changes(
        live=made, spec=job_spec(), role="Worker", suspended=False, copies={"pictures": "1"}
    )
    reads = change["spec"]["template"]["metadata"]["annotations"]["tdcs.io/datasets"]
    assert json.loads(reads) == [{"dataset": "n/pictures", "copy": "1"}]
    # Kubernetes refuses any change of the pods of a Job that has started, suspended again or not.
    live = {**made, "status": {"startTime": NOW}}
    for preferred in (None, [{"weight": 1, "preference": {}}]):
        assert children.changes(
            live=live,
            spec=job_spec(),
            role="Worker",
            suspended=False,
            copies={"pictures": "1"},
            preferred=preferred,
        ) == {"spec": {"suspend": False}}


def test_a_job_that_exists_is_changed_only_where_it_may_be() -> None:
    made = children.job(
        owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True, scheduler_name="old"
    )
    assert children.changes(live=made, spec=job_spec(), role="Worker", suspended=True) == {}
    limited = job_spec(runPolicy={"backoffLimit": 2, "activeDeadlineSeconds": 60})
    assert children.changes(live=made, spec=limited, role="Worker", suspended=False) == {
        "spec": {"suspend": False, "backoffLimit": 2, "activeDeadlineSeconds": 60}
    }
    live = {**made, "spec": {**made["spec"], "activeDeadlineSeconds": 60}}
    assert children.changes(live=live, spec=job_spec(), role="Worker", suspended=True) == {
        "spec": {"activeDeadlineSeconds": None}
    }


def test_what_tdcs_adds_to_a_bare_template() -> None:
    job = children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert spec["suspend"] is True
    assert "backoffLimit" not in spec
    pod = spec["template"]["spec"]
    assert (pod["schedulerName"], pod["restartPolicy"], pod["subdomain"]) == (
        "tdcs-scheduler",
        "Never",
        "train",
    )
    reads = json.loads(spec["template"]["metadata"]["annotations"]["tdcs.io/datasets"])
    assert reads == [{"dataset": "n/pictures", "copy": "0"}]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "pictures", "readOnly": True}


MALFORMED = [
    ("metadata", {"metadata": "x"}),
    ("metadata.labels", {"metadata": {"labels": ["x"]}}),
    ("spec.volumes", {"spec": {"volumes": "x"}}),
    ("spec.containers", {"spec": {"containers": []}}),
    ("spec.initContainers", {"spec": {"initContainers": "abc"}}),
    ("spec.containers[0].env", {"spec": {"containers": [{"name": "main", "env": "abc"}]}}),
    ("spec.containers[0].env[0]", {"spec": {"containers": [{"name": "main", "env": ["abc"]}]}}),
    ("spec.containers[0].volumeMounts", {"spec": {"containers": [{"name": "main", "volumeMounts": 1}]}}),
]


def with_template(change: dict[str, Any]) -> TrainingJobSpec:
    pod = {"containers": [{"name": "main", "image": "train"}], **change.get("spec", {})}
    return job_spec(roles={"Worker": {"template": {**change, "spec": pod}}})


@pytest.mark.parametrize(("field", "change"), MALFORMED)
def test_a_template_that_nothing_can_be_added_to_is_an_invalid_spec(
    field: str, change: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as refused:
        with_template(change)
    told = explain_invalid(refused.value)
    assert f"template.{field}: " in told
    assert "Shape" not in told


def test_null_in_a_template_is_the_same_as_nothing() -> None:
    empty = {"name": "main", "image": "train", "env": None, "volumeMounts": None}
    spec = {"volumes": None, "initContainers": None, "containers": [empty]}
    nulls = with_template({"metadata": {"labels": None, "annotations": None}, "spec": spec})
    assert children.pod_template(owner=JOB_OBJECT, spec=with_template({"metadata": None}))
    made = children.pod_template(owner=JOB_OBJECT, spec=nulls)
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["data-pictures"]
    assert len(made["spec"]["containers"][0]["env"]) == 2


def test_volumes_of_long_names_stay_apart() -> None:
    uses = [DatasetUse(name="d" * 60 + end, mount_path=f"/{end}") for end in "ab"]
    found = {children.volume_name(use) for use in uses}
    assert len(found) == 2
    assert max(map(len, found)) <= 63


def test_a_job_without_a_framework_gets_no_rendezvous() -> None:
    made = children.pod_template(owner=JOB_OBJECT, spec=job_spec(framework="None"))
    assert "env" not in made["spec"]["containers"][0]


def pod(name: str, node: str, *, index: str, created: str = NOW, **more: Any) -> PodView:
    return PodView(name=name, node=node, index=index, created=created, **more)


def seen_with(*pods: PodView, known: TrainingJobStatus = ADMITTED, job: JobView | None = None) -> Observed:
    held = {"pictures": dataset(nodes={"a": 60, "b": 40})}
    jobs: dict[Role, JobView] = {"Worker": job} if job is not None else {}
    return Observed(spec=job_spec(), known=known, name="train", datasets=held, pods=pods, jobs=jobs)


def status(seen: Observed) -> TrainingJobStatus:
    outcome = decisions.outcome(seen, now=NOW)
    return report.status_of(seen, decision=decided(seen), outcome=outcome, now=NOW)


def test_locality_is_one_only_on_the_node_with_the_most_bytes() -> None:
    found = status(seen_with(pod("p0", "a", index="0"), pod("p1", "c", index="1")))
    assert [(place.node, place.cached_bytes) for place in found.placement] == [("a", 60), ("c", 0)]
    assert found.locality == 0.5  # one pod at its best node, one without a byte
    assert found.locality_percent == "50%"
    assert found.local_share == 0.3


def test_parameter_servers_do_not_count_for_locality() -> None:
    found = status(seen_with(pod("p0", "a", index="0"), pod("s0", "c", index="0", role="PS")))
    assert [place.pod for place in found.placement] == ["p0", "s0"]
    assert found.locality == 1.0


def test_a_replaced_pod_is_not_reported() -> None:
    old = pod("p0-old", "c", index="0", created="2025-01-01T00:00:00Z")
    found = status(seen_with(old, pod("p0-new", "a", index="0")))
    assert [place.pod for place in found.placement] == ["p0-new"]


def test_where_pods_ran_is_kept_when_they_and_the_data_are_gone() -> None:
    before = status(seen_with(pod("p0", "a", index="0")))
    known = before.model_copy(update={"conditions": ADMITTED.conditions})
    jobs: dict[Role, JobView] = {"Worker": JobView(complete=True, completion_time=NOW)}
    after = status(Observed(spec=job_spec(), known=known, jobs=jobs))
    assert after.placement == [PodPlacement(pod="p0", node="a", cached_bytes=60)]
    assert (after.locality, after.local_share) == (before.locality, before.local_share)
    assert after.completion_time == NOW


STATES = {
    "Starting": JobView(active=2, ready=1),
    "Running": JobView(active=2, ready=2),
    "Succeeded": JobView(succeeded=2, complete=True),
    "Failed": JobView(failed=7, failure="BackoffLimitExceeded: too many"),
}


@pytest.mark.parametrize("state", STATES)
def test_the_state_is_what_the_job_controller_says(state: str) -> None:
    seen = seen_with(job=STATES[state])
    outcome = decisions.outcome(seen, now=NOW)
    findings = report.findings_of(seen, decision=decided(seen), outcome=outcome)
    found = {finding.type: finding.status for finding in findings}
    assert status(seen).state == state
    assert (found["Running"] == "True") == (state == "Running")
    assert (found.get("Succeeded"), found.get("Failed")) == (
        "True" if state == "Succeeded" else None,
        "True" if state == "Failed" else None,
    )


def test_pods_that_end_one_by_one_do_not_make_a_running_job_start_again() -> None:
    """Between the end of the pods and the Job controller's word for it."""
    done = [pod(f"p{i}", "a", index=str(i), phase="Succeeded") for i in range(2)]
    assert status(seen_with(*done, job=JobView(active=0))).state == "Running"


def test_the_ending_of_a_job_is_read_from_its_conditions() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    view = job_view({"status": {"conditions": [{**failed, "lastTransitionTime": NOW}], "failed": 1}})
    assert view.failure == "DeadlineExceeded: too long"
    assert view.completion_time == NOW
    assert job_view({"status": {"conditions": [{**failed, "status": "False"}]}}).finished is False
    assert job_view(None) == JobView()


def test_a_running_job_whose_data_is_read_again_is_told_so_and_a_suspended_one_waits() -> None:
    lost = {"pictures": dataset(cached=40)}
    spec = reading(percent=100)
    running = Observed(
        spec=spec, known=ADMITTED, datasets=lost, present=frozenset(lost), created=NOW, jobs={}, pods=()
    )
    found = report.findings_of(running, decision=decided(running), outcome=None)
    ready = next(one for one in found if one.type == "DataReady")
    assert (ready.status, ready.reason) == ("False", "DatasetLoading")
    assert ready.message == (
        "the job runs, and Dataset pictures has 40% of its bytes cached now: the rest is being loaded again, and is "
        "read from other nodes or the source until then"
    )
    admitted = next(one for one in found if one.type == "Admitted")
    assert admitted.status == "True"
    assert "the job waits" not in admitted.message
    held = replace(running, spec=spec.model_copy(update={"run_policy": RunPolicy(suspend=True)}))
    assert "the job waits for 100%" in decisions.data(held, now=NOW).message
    # Of a gang that gives its places back nothing runs any more.
    assert "the job waits for 100%" in decisions.data(running, now=NOW, runs=False).message


def test_labels_and_annotations_of_a_job_reach_its_children_and_ours_win() -> None:
    given = {
        "team": "vision",
        "tdcs.io/role": "mine",
        "app.kubernetes.io/managed-by": "Helm",
        "kueue.x-k8s.io/queue-name": "gpus",
    }
    notes = {"bill": "vision", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    owner = {**JOB_OBJECT, "metadata": {**JOB_OBJECT["metadata"], "labels": given, "annotations": notes}}
    pod = {"containers": [{"name": "main", "image": "train"}]}
    template = {"metadata": {"labels": {"team": "speech"}, "annotations": {"own": "1"}}, "spec": pod}
    spec = job_spec(roles={"Worker": {"replicas": 1, "template": template}})
    made = children.job(owner=owner, spec=spec, role="Worker", suspended=True)
    ours = children.labels_of(job="train", role="Worker")
    assert made["metadata"]["labels"] == {"team": "vision", **ours}
    assert made["metadata"]["annotations"] == {"bill": "vision"}
    pods = made["spec"]["template"]["metadata"]
    assert pods["labels"] == {"team": "speech", **ours}  # the template's own win over the job's
    assert {"bill": "vision", "own": "1"}.items() <= pods["annotations"].items()
    assert not [key for key in pods["annotations"] if key.startswith("kubectl.")]
    service = children.service(owner=owner, spec=spec)["metadata"]
    assert service["labels"]["team"] == "vision"
    assert service["labels"]["app.kubernetes.io/managed-by"] == "tdcs"
