"""The pod that serves a claim, by the operator's rights and under the chart's policies: the Job controller makes it,
and nothing is left of it."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable

import pytest
from tests.controlplane.operator_world import World, world
from tests.controlplane.rights.stolen_objects import job, metadata, owner
from tests.controlplane.rights.test_admission_operator import Policies, policies, refusal, release, thief
from tests.support.kube import Kube, Object
from tests.support.waiting import eventually_async

from tdcs.api import names
from tdcs.control.dataset.access import claim_server_objects
from tdcs.control.dataset.access.claim_servers import ClaimServers
from tdcs.decide.problem import Problem
from tdcs.kube.client import connect
from tdcs.model.cache_engine import ClaimError, Source
from tdcs.model.claim_source import claim_folder

__all__ = ["policies", "release", "thief", "world"]

DEADLINE = 120.0
NO_TROUBLE = Problem(reason="", message="")


def create_claim(world: World) -> Object:
    """A claim that is bound to a volume, in a namespace that takes restricted pods alone."""
    kube, space = world.kube, world.namespace
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.patch("Namespace", space, {"metadata": {"labels": label}})
    of_both = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claimed = {"namespace": space, "name": "photos"}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"photos-{space}"},
            "spec": {
                **of_both,
                "capacity": {"storage": "1Gi"},
                "claimRef": claimed,
                "nfs": {"server": "nfs.example", "path": "/"},
            },
        }
    )
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": claimed,
            "spec": {
                **of_both,
                "volumeName": f"photos-{space}",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    world.wait(lambda: phase(world) == "Bound")
    return kube.get("PersistentVolumeClaim", "photos", namespace=space)


def phase(world: World) -> str:
    claim = world.kube.get("PersistentVolumeClaim", "photos", namespace=world.namespace)
    return str((claim.get("status") or {}).get("phase", ""))


def source(world: World) -> Source:
    return Source(uri="pvc://photos/train", options={"namespace": world.namespace})


def made(world: World) -> dict[str, list[str]]:
    """The names of what there is of pods that serve claims."""
    labels = {names.LABEL_COMPONENT: names.COMPONENT_CLAIM_SERVER}
    return {
        kind: [obj["metadata"]["name"] for obj in objects]
        for kind in ("Job", "Pod", "Secret")
        if (objects := world.kube.list(kind, namespace=world.namespace, labels=labels))
    }


@pytest.fixture
async def servers(world: World, release: str, thief: Kube, policies: Policies) -> AsyncIterator[ClaimServers]:
    policies.enforce(job(metadata("kube-system", owner("TrainingJob"))), by=thief)
    kubeconfig = world.plane.kubeconfig_as(service_account=f"{release}-operator", namespace=world.namespace)
    api = await connect(kubeconfig=kubeconfig)
    servers = ClaimServers(api=api, image="tdcs:test", idle_seconds=0.5, patience_seconds=20.0)
    yield servers
    await servers.close()
    await api.close()
    world.kube.delete("PersistentVolume", f"photos-{world.namespace}")


async def test_a_pod_is_made_with_the_operators_rights_and_nothing_is_left_of_it(
    world: World, servers: ClaimServers
) -> None:
    create_claim(world)

    def reached(needed: bool = True) -> Source | None:
        return servers.reached(source(world), by="mount", needed=needed, on_change=lambda: None)

    await eventually_async(
        lambda: reached() is not None, deadline=DEADLINE, describe=lambda: str(made(world))
    )
    claim_source = reached()
    assert claim_source is not None
    (pod,) = world.kube.list("Pod", namespace=world.namespace)
    assert pod["status"]["podIP"] in claim_source.options["endpoint"]
    assert {kind: len(objects) for kind, objects in made(world).items()} == {"Job": 1, "Pod": 1, "Secret": 1}
    reached(needed=False)
    await eventually_async(lambda: not made(world), deadline=DEADLINE, describe=lambda: str(made(world)))


@pytest.mark.failure_mode("claim-gone")
async def test_a_quota_is_quoted_and_a_deleted_claim_goes_with_its_pod(
    world: World, servers: ClaimServers
) -> None:
    create_claim(world)
    quota = {"name": "none", "namespace": world.namespace}
    world.kube.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": quota, "spec": {"hard": {"pods": "0"}}}
    )

    async def refused(reason: str) -> str:
        with pytest.raises(ClaimError) as caught:
            async with servers.in_use(source(world)):
                raise AssertionError("there is no pod")
        assert caught.value.problem == reason, str(caught.value)
        return str(caught.value)

    servers.reached(source(world), by="mount", needed=True, on_change=lambda: None)
    await eventually_async(
        lambda: "exceeded quota" in (servers.trouble(source(world)) or NO_TROUBLE).message, deadline=DEADLINE
    )
    assert "exceeded quota: none" in await refused("SourceClaimNotServed")
    world.kube.delete("ResourceQuota", "none", namespace=world.namespace)
    world.kube.delete("PersistentVolumeClaim", "photos", namespace=world.namespace)

    def find() -> Object | None:
        return world.kube.find("PersistentVolumeClaim", "photos", namespace=world.namespace)

    await eventually_async(lambda: find() is None and not made(world), deadline=DEADLINE)
    assert "does not exist" in await refused("SourceClaimNotFound")


@pytest.mark.threat("token-jobs")
def test_a_stolen_token_makes_no_other_jobs_and_secrets_of_this_kind(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    claim = create_claim(world)
    where = claim_folder(source(world).uri, source(world).options)
    name = "tdcs-claim-1"
    good = claim_server_objects.job(source(world), where, name=name, by="me", claim=claim, image="x")
    policies.enforce(job(metadata("kube-system", owner("TrainingJob"))), by=thief)
    assert refusal(thief, world.kube, good) == ""

    def pod(obj: Object) -> Object:
        pod_spec: Object = obj["spec"]["template"]["spec"]
        return pod_spec

    def with_command(obj: Object) -> None:
        pod(obj)["containers"][0]["command"] = ["sh"]

    def with_another_program(obj: Object) -> None:
        pod(obj)["containers"][0]["args"] = ["operator"]

    def writable(obj: Object) -> None:
        pod(obj)["volumes"][0]["persistentVolumeClaim"]["readOnly"] = False

    def of_another_claim(obj: Object) -> None:
        pod(obj)["volumes"][0]["persistentVolumeClaim"]["claimName"] = "theirs"

    def with_another_secret(obj: Object) -> None:
        pod(obj)["volumes"][1]["secret"]["secretName"] = "theirs"

    def with_a_folder_of_the_node(obj: Object) -> None:
        pod(obj)["volumes"].append({"name": "host", "hostPath": {"path": "/"}})

    def with_a_token(obj: Object) -> None:
        pod(obj)["automountServiceAccountToken"] = True

    def with_a_second_container(obj: Object) -> None:
        pod(obj)["containers"].append({**pod(obj)["containers"][0], "name": "other"})

    changes: tuple[Callable[[Object], None], ...] = (
        with_command,
        with_another_program,
        writable,
        of_another_claim,
        with_another_secret,
        with_a_folder_of_the_node,
        with_a_token,
        with_a_second_container,
    )
    for change in changes:
        bad = copy.deepcopy(good)
        change(bad)
        assert "those that serve claims" in refusal(thief, world.kube, bad), change.__name__
