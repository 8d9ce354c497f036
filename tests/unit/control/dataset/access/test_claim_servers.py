"""The pods that serve claims, on an API server in memory: made when they are needed, gone afterwards, and why one is
not there."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import eventually_async
from tests.unit.control.server import Server
from tests.unit.kube.fake import error

from tdcs.api import names
from tdcs.api.dataset import DatasetSpec
from tdcs.control.dataset.access import claim_servers
from tdcs.control.dataset.access.claim_servers import ClaimServers
from tdcs.control.dataset.access.volume_origins import MountedSource, Origin, judge
from tdcs.decide.cache import mount_identity
from tdcs.kube.errors import ForbiddenError
from tdcs.model.cache_engine import ClaimError, Source
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import EVENTS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, Resource
from tdcs.trust.certificates import belong_together

READY = [{"type": "Ready", "status": "True"}]


def source(namespace: str = "team", uri: str = "pvc://photos/train", **options: str) -> Source:
    return Source(uri=uri, options={"namespace": namespace, **options})


class World:
    """A namespace with a claim, and what makes pods for it."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.jobs_end_as = "Suspended"  # a condition that ends none
        self.now = 0.0
        self.servers = self.operator()
        self.changes = 0

    def operator(self) -> ClaimServers:
        return ClaimServers(
            api=self.server,
            image="tdcs:1",
            idle_seconds=180.0,
            patience_seconds=0.5,
            clock=lambda: self.now,
        )

    async def create_claim(self, namespace: str = "team", **fields: Any) -> None:
        metadata = {"name": "photos", "namespace": namespace}
        await self.server.create(
            PERSISTENT_VOLUME_CLAIMS,
            obj={"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}, **fields},
        )

    @property
    def jobs(self) -> list[Object]:
        return list(self.server.store(JOBS).values())

    async def until_job(self) -> Object:
        await eventually_async(lambda: any(not job["spec"]["suspend"] for job in self.jobs), deadline=30)
        (job,) = self.jobs
        return job

    async def run_pod(self, job: Object, address: str = "10.0.0.7") -> None:
        owner = {"kind": "Job", "uid": job["metadata"]["uid"]}
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        await self.server.create(
            PODS,
            obj={
                "kind": "Pod",
                "metadata": {"name": f"{name}-x", "namespace": namespace, "ownerReferences": [owner]},
                "status": {"podIP": address, "conditions": READY},
            },
        )

    def need(self, claim: Source, *, needed: bool = True, by: str = "mount") -> Source | None:
        def changed() -> None:
            self.changes += 1

        return self.servers.reached(claim, by=by, needed=needed, on_change=changed)

    async def until_reached(self, claim: Source) -> Source:
        await eventually_async(lambda: self.need(claim) is not None, deadline=30)
        reached = self.need(claim)
        assert reached is not None
        return reached

    async def refusal(self, claim: Source) -> ClaimError:
        with pytest.raises(ClaimError) as caught:
            async with self.servers.in_use(claim):
                pass
        return caught.value


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(claim_servers, "_STARTING_SECONDS", 0.01)
    monkeypatch.setattr(claim_servers, "_SERVING_SECONDS", 0.01)
    world = World()
    yield world
    await world.servers.close()


async def test_a_pod_without_rights_mounts_the_claim_read_only_and_serves_one_folder(world: World) -> None:
    await world.create_claim()
    assert world.need(source(runAsUser="1000")) is None
    job = await world.until_job()
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["claim-server", "--folder=/claim/train"]
    assert container["image"] == "tdcs:1"
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 1000
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    (claim, secret) = pod["volumes"]
    assert claim["persistentVolumeClaim"] == {"claimName": "photos", "readOnly": True}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert secret["secret"]["secretName"] == job["metadata"]["name"]
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PersistentVolumeClaim", "photos"), "it goes with the claim"

    (tls_secret,) = world.server.store(SECRETS).values()
    data = {key: base64.b64decode(value) for key, value in tls_secret["data"].items()}
    assert tls_secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"], (
        "it goes with the Job"
    )
    assert belong_together(certificate=data["tls.crt"], key=data["tls.key"])
    assert data["token"].decode() not in str(job), "whoever reads pods reads no token"

    await world.run_pod(job)
    reached = await world.until_reached(source(runAsUser="1000"))
    assert reached.options["endpoint"] == "https://10.0.0.7:8443"
    assert reached.credentials is not None
    assert reached.credentials.session_token == data["token"].decode()
    assert reached.ca_bundle.encode() == data["tls.crt"]
    assert world.changes


async def test_a_pod_goes_when_it_was_not_needed_for_a_while_and_comes_back_by_another_name(
    world: World,
) -> None:
    await world.create_claim()
    world.need(source())
    first = await world.until_job()
    await world.run_pod(first)
    await world.until_reached(source())
    world.need(source(), by="another mount")
    world.need(source(), needed=False)
    world.now += 1000
    await asyncio.sleep(0.1)
    assert world.jobs, "another one needs it"
    world.servers.release("another mount")
    await asyncio.sleep(0.1)
    assert world.jobs, "it may be needed again soon"
    world.now += 181
    await eventually_async(lambda: not world.jobs, deadline=30)
    world.need(source())
    second = await world.until_job()
    assert second["metadata"]["name"] != first["metadata"]["name"]


async def test_the_next_operator_replaces_the_pod_of_which_it_knows_no_token(world: World) -> None:
    await world.create_claim()
    world.need(source())
    first = await world.until_job()
    await world.servers.close()
    world.servers = world.operator()
    world.need(source())
    await eventually_async(
        lambda: world.jobs and all(job["metadata"]["uid"] != first["metadata"]["uid"] for job in world.jobs),
        deadline=30,
    )
    assert len(world.jobs) == 1


async def test_a_new_address_of_the_claims_pod_is_announced(world: World) -> None:
    await world.create_claim()
    world.need(source())
    job = await world.until_job()
    await world.run_pod(job)
    await world.until_reached(source())
    before = world.changes
    world.server.store(PODS).clear()
    await eventually_async(lambda: world.changes > before and world.need(source()) is None, deadline=30)
    await world.run_pod(job, "10.0.0.8")
    assert (await world.until_reached(source())).options["endpoint"] == "https://10.0.0.8:8443"


async def test_a_pod_that_a_tenant_planted_next_to_the_job_is_not_asked(world: World) -> None:
    await world.create_claim()
    world.need(source())
    job = await world.until_job()
    labels = {
        **job["spec"]["template"]["metadata"]["labels"],
        "batch.kubernetes.io/job-name": job["metadata"]["name"],
    }
    planted = {"name": "planted", "namespace": "team", "labels": labels}
    await world.server.create(
        PODS, obj={"kind": "Pod", "metadata": planted, "status": {"podIP": "10.9.9.9", "conditions": READY}}
    )
    await asyncio.sleep(0.1)
    assert world.need(source()) is None
    await world.run_pod(job)
    assert "10.0.0.7" in (await world.until_reached(source())).options["endpoint"]


async def test_a_missing_claim_and_one_that_goes_have_no_pod_and_are_named(world: World) -> None:
    refusal = await world.refusal(source())
    assert refusal.problem == "SourceClaimNotFound"
    assert "PersistentVolumeClaim team/photos" in str(refusal)
    await world.create_claim()
    world.need(source())
    await world.until_job()
    claims = world.server.store(PERSISTENT_VOLUME_CLAIMS)
    claims["team", "photos"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await eventually_async(lambda: not world.jobs, deadline=30)
    trouble = world.servers.trouble(source())
    assert trouble is not None
    assert trouble.reason == "SourceClaimNotUsable"


async def test_a_quota_that_refuses_the_pod_is_quoted(world: World) -> None:
    await world.create_claim()
    world.need(source())
    job = await world.until_job()
    message = 'pods "tdcs-claim" is forbidden: exceeded quota: small, requested: pods=1'
    await world.server.create(
        EVENTS,
        obj={
            "metadata": {"name": "e", "namespace": "team"},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": message,
            "involvedObject": {"uid": job["metadata"]["uid"]},
        },
    )
    await eventually_async(lambda: world.server.store(EVENTS), deadline=30)
    await asyncio.sleep(0.1)
    refusal = await world.refusal(source())
    assert refusal.problem == "SourceClaimNotServed"
    assert message in str(refusal)


@pytest.mark.parametrize("refused", [JOBS, SECRETS], ids=["jobs", "secrets"])
async def test_a_right_or_policy_that_is_missing_is_quoted_and_nothing_begins(
    world: World, refused: Resource
) -> None:
    def refuse(verb: str, resource: Resource) -> None:
        if verb == "create" and resource is refused:
            raise error(ForbiddenError)

    world.server.refuse = refuse
    await world.create_claim()
    refusal = await world.refusal(source())
    assert refusal.problem == "SourceClaimNotServed"
    assert all(job["spec"]["suspend"] for job in world.jobs), "no pod waits for a Secret that cannot be made"


async def test_a_job_that_failed_is_made_again(world: World) -> None:
    await world.create_claim()
    world.need(source())
    first = await world.until_job()
    world.server.store(JOBS)["team", first["metadata"]["name"]]["status"] = {
        "conditions": [{"type": "Failed", "status": "True"}]
    }
    await eventually_async(
        lambda: any(job["metadata"]["uid"] != first["metadata"]["uid"] for job in world.jobs), deadline=30
    )
    assert len(world.jobs) == 1


async def test_other_folders_and_users_of_a_claim_have_other_pods(world: World) -> None:
    await world.create_claim()
    await world.create_claim("other")
    sources = [source(), source(uri="pvc://photos"), source(runAsUser="7"), source("other")]
    for claim in sources:
        world.need(claim, by=str(claim))
    await eventually_async(lambda: len(world.jobs) == 4, deadline=30)
    assert {job["metadata"]["namespace"] for job in world.jobs} == {"team", "other"}
    assert len({job["metadata"]["labels"][names.LABEL_SERVED_CLAIM] for job in world.jobs}) == 4


def spec() -> DatasetSpec:
    return DatasetSpec.model_validate({"source": {"uri": "pvc://photos/train"}})


def test_a_volume_that_leads_to_the_claim_of_another_namespace_is_a_strangers() -> None:
    mine, theirs = (
        mount_identity.source_of(spec=spec(), credentials=None, namespace=namespace)
        for namespace in ("mine", "theirs")
    )
    path = mount_identity.engine_path(source=theirs)
    assert path != mount_identity.engine_path(source=mine)
    assert mount_identity.mark(mine) != mount_identity.mark(theirs)
    for mounted in (
        MountedSource(source=None, uri="pvc://photos/train"),  # after a restart of the operator
        MountedSource(source=theirs, uri="pvc://photos/train"),
        MountedSource(source=None, uri=""),
    ):
        assert judge(path=path, spec=mine, source=mine, mounted=mounted) is Origin.OTHER
        assert judge(path=path, spec=mine, source=None, mounted=mounted) is Origin.OTHER
        assert judge(path=path, spec=theirs, source=theirs, mounted=mounted) is Origin.OWN
