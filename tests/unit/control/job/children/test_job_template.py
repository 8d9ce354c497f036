"""What a job's children get: its template, and what TDCS adds to it."""

import json
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.control.builders import JOB_OBJECT, NOW, job_spec

from tdcs.api.trainingjob import DatasetUse, Role, TrainingJobSpec
from tdcs.control.job import job_children
from tdcs.control.job.framework_rendezvous import tf_config
from tdcs.model.humanize import explain_invalid


def test_tf_config_is_json_once_kubelet_has_put_in_the_index() -> None:
    text = tf_config(job="train", namespace="n", spec=job_spec(), role="Worker")
    config = json.loads(text.replace("$(JOB_COMPLETION_INDEX)", "1"))
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == [
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
    pod = job_children.pod_template(owner=JOB_OBJECT, spec=spec)
    assert pod["metadata"]["labels"]["app"] == "mine"
    assert pod["metadata"]["annotations"]["note"] == "mine"
    assert pod["spec"]["schedulerName"] == "mine"
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["scratch", "data-pictures"]
    container = pod["spec"]["containers"][0]
    assert [entry for entry in container["env"] if entry["name"] == "TF_CONFIG"] == [
        {"name": "TF_CONFIG", "value": "{}"}
    ]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp", "/data"]
    assert container["volumeMounts"][1]["mountPropagation"] == "HostToContainer"


def test_the_default_scheduler_places_jobs_where_tdcs_has_none() -> None:
    for name, expected in (("other", "other"), ("", None)):
        job = job_children.job(
            owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True, scheduler_name=name
        )
        assert job["spec"]["template"]["spec"].get("schedulerName") == expected


def test_only_pods_that_read_data_are_placed_by_the_scheduler_that_asks_the_extender() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    roles = {role: {"replicas": 1, "template": template} for role in ("Worker", "Chief", "PS")}
    every_role: list[Role] = ["Worker", "Chief", "PS"]
    cases: list[tuple[dict[str, Any], set[str]]] = [({}, {"Worker", "Chief"}), ({"datasets": []}, set())]
    for datasets, readers in cases:
        spec = job_spec(roles=roles, **datasets)
        for role in every_role:
            pod = job_children.pod_template(owner=JOB_OBJECT, spec=spec, role=role)
            assert ("schedulerName" in pod["spec"]) == (role in readers)
            assert ("tdcs.io/datasets" in pod["metadata"]["annotations"]) == (role in readers)


def test_pods_carry_for_a_minute_which_nodes_they_leave_to_larger_ones() -> None:
    job = job_children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    now = "2026-01-01T00:00:30Z"

    def annotations(
        leave: set[str], *, live: dict[str, Any] = job, spec: TrainingJobSpec | None = None
    ) -> dict[str, str]:
        change = job_children.changes(
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
    assert annotations({"a"}, live={**job, "status": {"startTime": NOW}}) == {}


def test_a_job_that_has_never_started_can_still_be_given_another_copy_to_read() -> None:
    job = job_children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    change = job_children.changes(
        live=job, spec=job_spec(), role="Worker", suspended=False, copies={"pictures": "1"}
    )
    reads = change["spec"]["template"]["metadata"]["annotations"]["tdcs.io/datasets"]
    assert json.loads(reads) == [{"dataset": "n/pictures", "copy": "1"}]
    # Kubernetes refuses any change of the pods of a Job that has started, suspended again or not.
    live = {**job, "status": {"startTime": NOW}}
    for preferred in (None, [{"weight": 1, "preference": {}}]):
        assert job_children.changes(
            live=live,
            spec=job_spec(),
            role="Worker",
            suspended=False,
            copies={"pictures": "1"},
            preferred=preferred,
        ) == {"spec": {"suspend": False}}


def test_a_job_that_exists_is_changed_only_where_it_may_be() -> None:
    job = job_children.job(
        owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True, scheduler_name="old"
    )
    assert job_children.changes(live=job, spec=job_spec(), role="Worker", suspended=True) == {}
    limited = job_spec(runPolicy={"backoffLimit": 2, "activeDeadlineSeconds": 60})
    assert job_children.changes(live=job, spec=limited, role="Worker", suspended=False) == {
        "spec": {"suspend": False, "activeDeadlineSeconds": 60}
    }
    # Made by an operator that replaced pods one by one: it goes on so.
    before = {**job, "metadata": {**job["metadata"], "annotations": {}}}
    before["spec"] = {key: value for key, value in job["spec"].items() if key != "backoffLimit"}
    assert job_children.changes(live=before, spec=limited, role="Worker", suspended=False) == {
        "spec": {"suspend": False, "backoffLimit": 2, "activeDeadlineSeconds": 60}
    }
    live = {**job, "spec": {**job["spec"], "activeDeadlineSeconds": 60}}
    assert job_children.changes(live=live, spec=job_spec(), role="Worker", suspended=True) == {
        "spec": {"activeDeadlineSeconds": None}
    }


def test_what_tdcs_adds_to_a_bare_template() -> None:
    job = job_children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert spec["suspend"] is True
    assert spec["backoffLimit"] == 0  # all pods are restarted together
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
    message = explain_invalid(refused.value)
    assert f"template.{field}: " in message
    assert "Shape" not in message


def test_null_in_a_template_is_the_same_as_nothing() -> None:
    empty = {"name": "main", "image": "train", "env": None, "volumeMounts": None}
    spec = {"volumes": None, "initContainers": None, "containers": [empty]}
    nulls = with_template({"metadata": {"labels": None, "annotations": None}, "spec": spec})
    assert job_children.pod_template(owner=JOB_OBJECT, spec=with_template({"metadata": None}))
    template = job_children.pod_template(owner=JOB_OBJECT, spec=nulls)
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["data-pictures"]
    assert len(template["spec"]["containers"][0]["env"]) == 2


def test_volumes_of_long_names_stay_apart() -> None:
    uses = [DatasetUse(name="d" * 60 + end, mount_path=f"/{end}") for end in "ab"]
    volume_names = {job_children.volume_name(use) for use in uses}
    assert len(volume_names) == 2
    assert max(map(len, volume_names)) <= 63


def test_a_job_without_a_framework_gets_no_rendezvous() -> None:
    template = job_children.pod_template(owner=JOB_OBJECT, spec=job_spec(framework="None"))
    assert "env" not in template["spec"]["containers"][0]


def test_labels_and_annotations_of_a_job_reach_its_children_and_ours_win() -> None:
    labels = {
        "team": "vision",
        "tdcs.io/role": "mine",
        "app.kubernetes.io/managed-by": "Helm",
        "kueue.x-k8s.io/queue-name": "gpus",
    }
    notes = {"bill": "vision", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    owner = {**JOB_OBJECT, "metadata": {**JOB_OBJECT["metadata"], "labels": labels, "annotations": notes}}
    pod = {"containers": [{"name": "main", "image": "train"}]}
    template = {"metadata": {"labels": {"team": "speech"}, "annotations": {"own": "1"}}, "spec": pod}
    spec = job_spec(roles={"Worker": {"replicas": 1, "template": template}})
    job = job_children.job(owner=owner, spec=spec, role="Worker", suspended=True)
    ours = job_children.labels_of(job="train", role="Worker")
    ours["velero.io/exclude-from-backup"] = "true"
    assert job["metadata"]["labels"] == {"team": "vision", **ours}
    assert job["metadata"]["annotations"] == {
        "bill": "vision",
        "tdcs.io/gang": "true",
        "tdcs.io/restart-attempt": "0",
        "tdcs.io/spec-digest": job_children.spec_digest(spec, "Worker"),
    }
    pods = job["spec"]["template"]["metadata"]
    assert pods["labels"] == {"team": "speech", **ours}  # the template's own win over the job's
    assert {"bill": "vision", "own": "1"}.items() <= pods["annotations"].items()
    assert not [key for key in pods["annotations"] if key.startswith("kubectl.")]
    service = job_children.service(owner=owner, spec=spec)["metadata"]
    assert service["labels"]["team"] == "vision"
    assert service["labels"]["app.kubernetes.io/managed-by"] == "tdcs"
