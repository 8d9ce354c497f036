"""A tenant that would read as another's ServiceAccount, and a token service that would have tokens shown elsewhere."""

from collections.abc import AsyncIterator

import pytest
from pydantic import ValidationError
from tests.support.programs.token_service import ROLE, token_service
from tests.unit.control.builders import dataset_object
from tests.unit.control.dataset.identity_world import STORE, World, identity_world

from tdcs.api.dataset import Dataset
from tdcs.model.kube_resources import DATASETS


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with identity_world() as world:
        yield world


def dataset_of(namespace: str, account: str) -> dict[str, object]:
    obj = dataset_object()
    obj["metadata"] = {"name": "mine", "namespace": namespace}
    options = {"endpoint": STORE}
    obj["spec"]["source"] = {"uri": "s3://pictures", "serviceAccountName": account, "options": options}
    return obj


@pytest.mark.threat("foreign-account")
async def test_an_account_of_the_same_name_in_another_namespace_is_another_one(world: World) -> None:
    await world.reader()
    await world.dataset()
    await world.cluster.until_state("Ready")
    await world.account("reader", namespace="mallory", **{"eks.amazonaws.com/role-arn": ROLE})
    await world.cluster.server.create(DATASETS, obj=dataset_of("mallory", "reader"))

    def told() -> dict[str, str]:
        status = world.cluster.server.store(DATASETS)["mallory", "mine"].get("status") or {}
        return next(
            (condition for condition in status.get("conditions", ()) if condition["type"] == "Ready"), {}
        )

    await world.cluster.until(lambda: told().get("reason") == "IdentityRefused")
    assert "system:serviceaccount:mallory:reader is not trusted" in told()["message"]
    assert {token[:2] for token in world.cluster.server.tokens.asked} == {
        ("n", "reader"),
        ("mallory", "reader"),
    }
    status = world.cluster.server.store(DATASETS)["mallory", "mine"]["status"]
    assert not status.get("mountPath")
    assert not status.get("claimName")


@pytest.mark.threat("foreign-account")
@pytest.mark.parametrize("name", ["n/reader", "../n/serviceaccounts/reader", "reader?", "", "Reader", "a/b"])
async def test_no_name_of_an_account_leads_into_another_namespace(world: World, name: str) -> None:
    await world.reader()
    await world.cluster.server.create(DATASETS, obj=dataset_of("mallory", name))
    await world.cluster.until(
        lambda: (
            "Ready"
            in [
                condition["type"]
                for condition in (
                    world.cluster.server.store(DATASETS)["mallory", "mine"].get("status") or {}
                ).get("conditions", ())
            ]
        )
    )
    assert world.cluster.server.tokens.asked == []
    assert world.service.asked == []


@pytest.mark.threat("foreign-account")
@pytest.mark.parametrize(
    "more",
    [
        {"secretRef": {"name": "keys"}},
        {"uri": "https://evil.example/x"},
        {"uri": "hf://a/b"},
        {"uri": "pvc://c"},
    ],
)
def test_an_account_next_to_keys_or_for_a_web_server_is_refused(more: dict[str, object]) -> None:
    obj = dataset_of("n", "reader")
    obj["spec"]["source"] = {**obj["spec"]["source"], "options": {}, **more}  # type: ignore[index]
    with pytest.raises(ValidationError, match="serviceAccountName"):
        Dataset.model_validate(obj)


@pytest.mark.threat("token-redirect")
async def test_a_service_that_redirects_is_shown_no_token_elsewhere(world: World) -> None:
    with token_service(world.service.key, trusts=world.service.trusts) as elsewhere:
        world.service.failure = (307, elsewhere.endpoint + "/")
        await world.reader()
        await world.dataset()
        message = await world.message_for("IdentityRefused")
    assert "redirects (307), and no token is shown to another host" in message
    assert elsewhere.asked == []
