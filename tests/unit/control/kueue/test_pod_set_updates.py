"""What Kueue's AdmissionChecks want pods to carry reaches the pods of a TrainingJob, as it reaches those of a Job."""

import copy
from typing import Any

import pytest
from tests.unit.control.jobs import Jobs, role
from tests.unit.control.kueue.test_kueue_jobs import QUEUE, Kueue, suspended

from tdcs.control.context import WorkKey
from tdcs.decide.kueue.kueue_nodes import GIVEN_BY_CHECKS, PodSetPlacement, template_changes
from tdcs.decide.kueue.pod_set_updates import PodSetConflictError, updates_of, with_update
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS, RESOURCE_FLAVORS, TRAINING_JOBS, Resource

CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"


def provisioned(attempt: int = 1, *, pods: str = "worker", **more: Any) -> dict[str, Any]:
    """The state of Kueue's check on a ProvisioningRequest whose nodes are there."""
    annotations = {
        CONSUME: f"trainingjob-train-prov-{attempt}",
        CLASS: "queued-provisioning.gke.io",
    }
    return {
        "name": "prov",
        "state": "Ready",
        "message": "Provisioning Request Succeeded",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "podSetUpdates": [{"name": pods, "annotations": annotations, **more}],
    }


def workload(*checks: dict[str, Any], **template: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "trainingjob-train", "namespace": "n"},
        "spec": {"podSets": [{"name": "worker", "template": {"spec": {}, **template}}]},
        "status": {"admissionChecks": list(checks)},
    }


def test_what_several_checks_want_is_added_up() -> None:
    zone = {"topology.kubernetes.io/zone": "b"}
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    update_of_zones = {
        "name": "worker",
        "nodeSelector": zone,
        "labels": {"cost": "team"},
        "tolerations": [toleration],
    }
    zone_check = {"name": "zones", "podSetUpdates": [update_of_zones]}
    (update,) = updates_of(workload(provisioned(tolerations=[toleration]), zone_check)).values()
    assert (update.node_selector, update.labels, update.tolerations) == (
        zone,
        {"cost": "team"},
        (toleration,),
    )
    assert update.annotations[CONSUME] == "trainingjob-train-prov-1"
    flavor = PodSetPlacement(node_labels={"gpu": "h100"}, tolerations=(toleration,), pod_set="worker")
    place = with_update(flavor, update)
    assert place.node_labels == {"gpu": "h100", **zone}
    assert place.tolerations == (toleration,)
    assert with_update(flavor, None) is flavor


@pytest.mark.parametrize(
    ("checks", "template", "words"),
    [
        (
            [
                provisioned(nodeSelector={"zone": "a"}),
                {**provisioned(nodeSelector={"zone": "b"}), "name": "zones"},
            ],
            {},
            ["AdmissionCheck zones", "node selector zone=b", "AdmissionCheck prov has zone=a"],
        ),
        (
            [provisioned(labels={"team": "a"})],
            {"metadata": {"labels": {"team": "b"}}},
            ["AdmissionCheck prov", "label team=a", "the job's template has team=b"],
        ),
        (
            [provisioned()],
            {"metadata": {"annotations": {CLASS: "mine"}}},
            [f"annotation {CLASS}=queued", "the job's template has"],
        ),
    ],
)
def test_two_values_of_one_key_are_an_error_that_names_both(
    checks: list[dict[str, Any]], template: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(PodSetConflictError) as refused:
        updates_of(workload(*checks, **template))
    for word in words:
        assert word in str(refused.value)


def test_the_same_value_twice_is_no_conflict_and_a_flavors_other_label_is_one() -> None:
    twice = workload(provisioned(nodeSelector={"zone": "a"}), provisioned(nodeSelector={"zone": "a"}))
    (update,) = updates_of(twice).values()
    with pytest.raises(PodSetConflictError, match="ResourceFlavor has zone=b"):
        with_update(PodSetPlacement(node_labels={"zone": "b"}, pod_set="worker"), update)


def test_another_admission_takes_away_what_the_checks_of_the_last_one_gave() -> None:
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {}}
    live = {"metadata": {"labels": {"app": "train", "controller-uid": "1"}}, "spec": {}}
    first = PodSetPlacement(node_labels={}, labels={"cost": "x"}, annotations={CONSUME: "r-1", "note": "y"})
    changed = template_changes(live, template=template, place=first)["metadata"]
    assert changed["labels"]["cost"] == "x"
    live = {
        "metadata": {
            "labels": {**live["metadata"]["labels"], "cost": "x"},
            "annotations": changed["annotations"],
        },
        "spec": {},
    }
    assert template_changes(live, template=template, place=first) == {}
    second = PodSetPlacement(node_labels={}, annotations={CONSUME: "r-2"})
    changed = template_changes(live, template=template, place=second)["metadata"]
    assert changed["labels"] == {"cost": None}
    assert (changed["annotations"][CONSUME], changed["annotations"]["note"]) == ("r-2", None)
    assert template_changes(live, template=template, place=PodSetPlacement(node_labels={}))["metadata"][
        "annotations"
    ] == {
        CONSUME: None,
        "note": None,
        GIVEN_BY_CHECKS: None,
    }


async def test_pods_carry_what_the_checks_want_and_after_an_eviction_what_they_want_then() -> None:
    async with Jobs(gpus={"a": 8, "b": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit(checks=[provisioned(1, labels={"cost": "team"})])
        await jobs.until(lambda: jobs.bound("train") == 2)

        def template() -> dict[str, Any]:
            return dict(jobs.job("train-worker")["spec"]["template"]["metadata"])

        assert template()["annotations"][CONSUME] == "trainingjob-train-prov-1"
        assert template()["annotations"][CLASS] == "queued-provisioning.gke.io"
        assert template()["labels"]["cost"] == "team"
        await kueue.evict()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        await kueue.admit(checks=[provisioned(2)])
        await jobs.until(lambda: template()["annotations"].get(CONSUME) == "trainingjob-train-prov-2")
        await jobs.until(lambda: not suspended(jobs))
        assert "cost" not in template()["labels"]


async def test_a_job_whose_checks_contradict_its_flavor_does_not_start_and_says_why() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        spec = {"nodeLabels": {"zone": "b"}}
        jobs.server.store(RESOURCE_FLAVORS)["", "h100"] = {"metadata": {"name": "h100"}, "spec": spec}
        await jobs.create(labels=QUEUE, framework="TensorFlow", roles={"Worker": role(1, gpus=1)})
        await jobs.until(kueue.there)
        await kueue.admit(flavor="h100", checks=[provisioned(nodeSelector={"zone": "a"})])
        await jobs.until(lambda: "AdmissionCheck prov" in jobs.status().get("message", ""))
        assert "the ResourceFlavor has zone=b" in jobs.status()["message"]
        assert suspended(jobs)


def flavor(jobs: Jobs, **labels: str) -> None:
    """The ResourceFlavor h100 has nodes with these labels."""
    resource_flavor = {"metadata": {"name": "h100"}, "spec": {"nodeLabels": labels}}
    jobs.server.store(RESOURCE_FLAVORS)["", "h100"] = resource_flavor


async def test_a_job_that_was_deleted_is_made_again_where_its_admission_has_it_run() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        flavor(jobs, zone="a")
        await jobs.create(labels=QUEUE, framework="TensorFlow", roles={"Worker": role(1, gpus=1)})
        await jobs.until(kueue.there)
        await kueue.admit(flavor="h100", checks=[provisioned(labels={"cost": "team"})])
        await jobs.until(lambda: not suspended(jobs))
        before = jobs.job("train-worker")["metadata"]["uid"]
        # What the Job controller could have made pods from, at any moment.
        runnable: list[Object] = []
        note = jobs.server.on_change

        def changed(resource: Resource, obj: Object, deleted: bool) -> None:
            if resource is JOBS and not deleted and not obj["spec"].get("suspend"):
                runnable.append(copy.deepcopy(obj["spec"]["template"]))
            note(resource, obj, deleted)

        jobs.server.on_change = changed
        await jobs.server.delete(JOBS, name="train-worker", namespace="n")

        def runs_again() -> bool:
            job = jobs.server.store(JOBS).get(("n", "train-worker"))
            return job is not None and job["metadata"]["uid"] != before and not job["spec"]["suspend"]

        await jobs.until(runs_again)
        assert runnable
        for template in runnable:
            assert template["spec"]["nodeSelector"] == {"zone": "a"}
            assert template["metadata"]["labels"]["cost"] == "team"
            assert template["metadata"]["annotations"][CONSUME] == "trainingjob-train-prov-1"


async def test_a_flavor_that_contradicts_the_checks_of_a_running_job_is_named_and_holds_its_new_job() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        flavor(jobs, gpu="h100")
        await jobs.create(labels=QUEUE, framework="TensorFlow", roles={"Worker": role(1, gpus=1)})
        await jobs.until(kueue.there)
        await kueue.admit(flavor="h100", checks=[provisioned(nodeSelector={"zone": "a"})])
        await jobs.until(lambda: not suspended(jobs))
        flavor(jobs, gpu="h100", zone="b")
        await jobs.server.delete(JOBS, name="train-worker", namespace="n")
        await jobs.until(lambda: "the ResourceFlavor has zone=b" in jobs.status().get("message", ""))
        assert jobs.condition("Admitted")["status"] == "True"
        assert jobs.condition("Admitted")["reason"] == "ChildRefused"
        assert suspended(jobs)
        assert not jobs.defects
        flavor(jobs, gpu="h100")
        jobs.context.queue.add(WorkKey(TRAINING_JOBS, "n", "train"))  # as it is every 30 s
        await jobs.until(lambda: not suspended(jobs))
        selector = jobs.job("train-worker")["spec"]["template"]["spec"]["nodeSelector"]
        assert selector == {"gpu": "h100", "zone": "a"}
        await jobs.until(lambda: jobs.condition("Admitted")["reason"] == "AdmittedByKueue")
        assert "ResourceFlavor" not in jobs.status()["message"]
