"""The keys of a source: read from the Secret that the Dataset names, never anywhere else."""

import base64
from typing import Any

from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.builders import dataset_object
from tests.unit.kube.fake import ScriptedApi, error

from tdcs.api.dataset import Dataset, DatasetSpec
from tdcs.control.context import Context, Settings
from tdcs.control.dataset.access.credentials import read_credentials
from tdcs.control.operator.operator import Operator
from tdcs.decide.problem import Problem
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError
from tdcs.model.cache_engine import NO_KEYS, Credentials
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource


class SecretApi(ScriptedApi):
    """Answers with one Secret, or refuses."""

    def __init__(self, answer: Object | Exception | None) -> None:
        super().__init__()
        self._answer = answer

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def context(api: KubeApi, settings: Settings | None = None) -> Context:
    engine = MemoryEngine(sources={}, workers={})
    return Operator(api=api, caches=MemoryCaches(engine), settings=settings or Settings()).context


def spec(**source: object) -> DatasetSpec:
    obj = dataset_object()
    obj["spec"]["source"].update(source)
    return Dataset.model_validate(obj).spec


NAMED: dict[str, Any] = {"secretRef": {"name": "keys"}}


async def refusal(
    answer: Object | Exception | None, settings: Settings | None = None, **source: object
) -> Problem:
    found = await read_credentials(
        context=context(SecretApi(answer), settings), namespace="n", spec=spec(**source)
    )
    assert isinstance(found, Problem)
    return found


async def test_a_source_without_a_secret_is_read_without_keys() -> None:
    found = await read_credentials(context=context(SecretApi(None)), namespace="n", spec=spec(secretRef=None))
    assert found is NO_KEYS


async def test_a_secret_that_is_missing_or_incomplete_is_named() -> None:
    missing = await refusal(None, **NAMED)
    incomplete = await refusal({"data": {"accessKeyId": base64.b64encode(b"me").decode()}}, **NAMED)
    assert (missing.reason, incomplete.reason) == ("SecretNotFound", "SecretIncomplete")
    assert "Secret n/keys" in missing.message
    assert "secretAccessKey" in incomplete.message


async def test_the_keys_are_those_of_the_secret() -> None:
    data = {"accessKeyId": b"me", "secretAccessKey": b"hidden"}
    secret = {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
    found = await read_credentials(context=context(SecretApi(secret)), namespace="n", spec=spec(**NAMED))
    assert isinstance(found, Credentials)
    assert (found.access_key_id, found.secret_access_key) == ("me", "hidden")


async def test_a_forbidden_secret_comes_with_the_command_that_allows_it() -> None:
    settings = Settings(namespace="home", secrets_role="my-dataset-secrets", service_account="my-operator")
    cause = await refusal(error(ForbiddenError), settings, **NAMED)
    assert cause.reason == "SecretForbidden"
    assert cause.message.endswith(
        "kubectl create rolebinding tdcs-dataset-secrets --clusterrole=my-dataset-secrets "
        "--serviceaccount=home:my-operator -n n"
    )


def secret(**values: str) -> Object:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


async def test_a_session_token_belongs_to_the_keys() -> None:
    answer = secret(accessKeyId="ASIAME", secretAccessKey="hidden", sessionToken="a-token")
    found = await read_credentials(context=context(SecretApi(answer)), namespace="n", spec=spec(**NAMED))
    assert isinstance(found, Credentials)
    assert found.session_token == "a-token"
    assert "a-token" in found.secrets
    assert "a-token" not in repr(found)


async def test_temporary_keys_without_their_token_are_refused_with_a_sentence() -> None:
    found = await refusal(secret(accessKeyId="ASIAME", secretAccessKey="hidden"), **NAMED)
    assert found.reason == "SecretIncomplete"
    assert "sessionToken" in found.message
    assert "hidden" not in found.message
    empty = await refusal(secret(accessKeyId="AKIAME", secretAccessKey="hidden", sessionToken=" "), **NAMED)
    assert "sessionToken" in empty.message
