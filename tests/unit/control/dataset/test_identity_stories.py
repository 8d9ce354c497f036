"""A Dataset that names a ServiceAccount: whose tokens are exchanged, for what, and what is said where they are not."""

from collections.abc import AsyncIterator

import pytest
from tests.support.programs.token_service import AMAZON, ROLE
from tests.unit.control.dataset.identity_world import STORE, World, identity_world
from tests.unit.kube.fake import error

from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_resources import DATASETS, EVENTS, SERVICE_ACCOUNTS, Resource


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with identity_world() as world:
        yield world


async def test_a_dataset_is_read_as_the_account_that_it_names(world: World) -> None:
    await world.reader()
    await world.dataset()
    await world.cluster.until_state("Ready")

    assert world.cluster.server.tokens.asked == [("n", "reader", AMAZON)]
    ((path, request),) = world.service.asked
    assert path == "/"
    assert request["RoleArn"] == ROLE
    assert request["RoleSessionName"] == "tdcs-n-reader"
    assert "s3:Put" not in request["Policy"]
    assert "s3:Get*" in request["Policy"]
    objects = str(world.cluster.server.store(DATASETS)) + str(world.cluster.server.store(EVENTS))
    for secret in (request["WebIdentityToken"], *world.service.given[0].values()):
        assert secret not in objects


async def test_datasets_of_one_account_share_a_mount_and_an_exchange(world: World) -> None:
    await world.reader()
    for name in ("one", "two"):
        await world.dataset(name)
    for name in ("one", "two"):
        await world.cluster.until_state("Ready", name)

    assert len(world.service.asked) == 1
    assert world.cluster.status("one")["mountPath"] == world.cluster.status("two")["mountPath"]


async def test_keys_are_renewed_before_they_end_and_the_mount_stays(world: World) -> None:
    world.service.seconds = 2.0
    await world.reader()
    await world.dataset()
    await world.cluster.until_state("Ready")
    path = world.cluster.status()["mountPath"]

    await world.cluster.until(lambda: len(world.service.given) >= 4)

    assert world.cluster.status()["mountPath"] == path
    assert world.cluster.status()["state"] == "Ready"
    mounted = world.cluster.engine.state.mounts[path].credentials
    await world.cluster.until(
        lambda: world.cluster.engine.state.mounts[path].credentials != mounted  # the agents' keys follow
    )
    assert world.cluster.condition("SourceReachable")["status"] == "True"


async def test_without_the_right_the_commands_for_this_one_account_are_said(world: World) -> None:
    def refuse(verb: str, resource: Resource) -> None:
        if resource is SERVICE_ACCOUNTS and verb == refused:
            raise error(ForbiddenError)

    await world.reader()
    world.cluster.server.refuse = refuse
    for refused in ("get", "create token"):
        await world.dataset(refused.replace(" ", "-"))
        message = await world.message_for("IdentityForbidden", refused.replace(" ", "-"))
        assert "ServiceAccount n/reader (spec.source.serviceAccountName)" in message
        assert "--resource-name=reader -n n" in message
        assert "--serviceaccount=tdcs-system:tdcs-operator" in message
    assert world.service.asked == []
    refused = ""
    await world.cluster.until_state("Ready", "get")


async def test_an_account_that_is_missing_or_has_no_role_is_named(world: World) -> None:
    await world.dataset()
    assert "ServiceAccount n/reader" in await world.message_for("IdentityNotFound")
    await world.account("reader")
    assert "no annotation eks.amazonaws.com/role-arn" in await world.message_for("IdentityNotNamed")
    await world.reader(role="reader")
    await world.cluster.until(lambda: "'reader'" in world.cluster.condition("Ready")["message"])
    assert world.service.asked == []
    await world.reader()
    await world.cluster.until_state("Ready")


async def test_the_answer_of_the_token_service_is_quoted(world: World) -> None:
    await world.reader("stranger")
    await world.dataset(account="stranger")
    message = await world.message_for("IdentityRefused")
    assert f"ServiceAccount n/stranger (spec.source.serviceAccountName) is not taken for {ROLE}" in message
    assert "(403): AccessDenied" in message
    assert "system:serviceaccount:n:stranger is not trusted" in message
    assert "audience sts.amazonaws.com" in message
    assert (
        world.cluster.server.tokens.issue(namespace="n", account="x", audience="y", seconds=1)[:20]
        not in message
    )


async def test_a_service_that_is_away_takes_nothing_from_who_has_keys(world: World) -> None:
    world.service.seconds = 4.0
    await world.reader()
    await world.dataset()
    await world.cluster.until_state("Ready")
    world.service.failure = (503, "come back later")
    before = len(world.service.asked)

    await world.cluster.until(lambda: len(world.service.asked) > before)
    assert world.cluster.condition("SourceReachable")["status"] == "True"
    message = await world.message_for("IdentityUnanswered", kind="SourceReachable")
    assert "(503)" in message
    assert "come back later" in message
    assert world.cluster.condition("Ready")["status"] == "True"
    assert "keysRefusedSince" not in world.cluster.status()


async def test_an_account_that_goes_ends_new_reads(world: World) -> None:
    await world.reader()
    await world.dataset()
    await world.cluster.until_state("Ready")
    world.cluster.server.store(SERVICE_ACCOUNTS).clear()
    await world.cluster.annotate("pictures", refresh="1")
    await world.message_for("IdentityNotFound", kind="SourceReachable")
    await world.cluster.until(lambda: "keysRefusedSince" in world.cluster.status())


async def test_another_account_of_the_name_has_an_exchange_of_its_own(world: World) -> None:
    await world.reader()
    await world.dataset()
    await world.cluster.until_state("Ready")
    world.cluster.server.store(SERVICE_ACCOUNTS).clear()
    await world.reader(role=f"{ROLE}2")
    await world.cluster.annotate("pictures", refresh="1")
    await world.message_for("IdentityRefused", kind="SourceReachable")


async def test_a_store_that_is_not_amazons_needs_a_token_service_that_the_administrator_names(
    world: World,
) -> None:
    await world.reader()
    source = {"uri": "s3://pictures", "serviceAccountName": "reader", "secretRef": None}
    await world.cluster.create_cache("other", sources=[{"name": "store", "endpoints": [STORE]}])
    await world.cluster.create_dataset(
        source={**source, "options": {"endpoint": STORE}}, cacheClusterRef={"name": "other"}
    )
    message = await world.message_for("IdentityNotConfigured")
    assert "spec.sources[].identity.endpoint" in message
    assert "administrator of CacheCluster other" in message
    assert world.cluster.server.tokens.asked == []
