"""The keys of a source: read from the Secret that the Dataset names, never anywhere else."""

import base64
from typing import Any

import pytest
from tests.support.caches import MemoryCaches
from tests.support.programs.google_store import ACCOUNT, key_file
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
    return Operator(api=api, caches=lambda _: MemoryCaches(engine), settings=settings or Settings()).context


def spec(**source: object) -> DatasetSpec:
    obj = dataset_object()
    obj["spec"]["source"].update(source)
    return Dataset.model_validate(obj).spec


NAMED: dict[str, Any] = {"secretRef": {"name": "keys"}}


async def refusal(
    answer: Object | Exception | None, settings: Settings | None = None, **source: object
) -> Problem:
    problem = await read_credentials(
        context=context(SecretApi(answer), settings), namespace="n", spec=spec(**source)
    )
    assert isinstance(problem, Problem)
    return problem


async def test_a_source_without_a_secret_is_read_without_keys() -> None:
    keys = await read_credentials(context=context(SecretApi(None)), namespace="n", spec=spec(secretRef=None))
    assert keys is NO_KEYS


async def test_a_secret_that_is_missing_or_incomplete_is_named() -> None:
    missing = await refusal(None, **NAMED)
    incomplete = await refusal({"data": {"accessKeyId": base64.b64encode(b"me").decode()}}, **NAMED)
    assert (missing.reason, incomplete.reason) == ("SecretNotFound", "SecretIncomplete")
    assert "Secret n/keys" in missing.message
    assert "secretAccessKey" in incomplete.message


async def test_the_keys_are_those_of_the_secret() -> None:
    data = {"accessKeyId": b"me", "secretAccessKey": b"hidden"}
    secret = {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
    keys = await read_credentials(context=context(SecretApi(secret)), namespace="n", spec=spec(**NAMED))
    assert isinstance(keys, Credentials)
    assert (keys.access_key_id, keys.secret_access_key) == ("me", "hidden")


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
    keys = await read_credentials(context=context(SecretApi(answer)), namespace="n", spec=spec(**NAMED))
    assert isinstance(keys, Credentials)
    assert keys.session_token == "a-token"
    assert "a-token" in keys.secrets
    assert "a-token" not in repr(keys)


async def test_temporary_keys_without_their_token_are_refused_with_a_sentence() -> None:
    problem = await refusal(secret(accessKeyId="ASIAME", secretAccessKey="hidden"), **NAMED)
    assert problem.reason == "SecretIncomplete"
    assert "sessionToken" in problem.message
    assert "hidden" not in problem.message
    empty = await refusal(secret(accessKeyId="AKIAME", secretAccessKey="hidden", sessionToken=" "), **NAMED)
    assert "sessionToken" in empty.message


AZURE = {"uri": "az://pictures/data", **NAMED}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"accountKey": "a2V5"}, Credentials(access_key_id="", secret_access_key="a2V5")),
        (
            {"sasToken": "?sv=2022-11-02&sp=rl&sig=a%2Fb%3D"},
            Credentials(
                access_key_id="", secret_access_key="", session_token="sv=2022-11-02&sp=rl&sig=a%2Fb%3D"
            ),
        ),
        ({"token": "ey.J.x"}, Credentials(access_key_id="", secret_access_key="", session_token="ey.J.x")),
    ],
)
async def test_a_container_is_read_with_a_key_a_signature_or_a_token(
    values: dict[str, str], expected: Credentials
) -> None:
    api = SecretApi(secret(**values))
    assert await read_credentials(context=context(api), namespace="n", spec=spec(**AZURE)) == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"accessKeyId": "a", "secretAccessKey": "hidden"}, "has none of them"),
        (
            {"accountKey": "hidden", "sasToken": "sv=1&sig=hidden"},
            "has accountKey and sasToken, of which one counts",
        ),
        ({"accountKey": "hidden!"}, "accountKey that cannot be used (it is no base64)"),
        ({"accountKey": ""}, "accountKey that cannot be used (it is empty)"),
        ({"sasToken": "hidden"}, "no usable sasToken"),
        ({"sasToken": "sv=1&sig=hidden words"}, "no usable sasToken"),
        ({"token": "Bearer hidden"}, "no usable token"),
        ({"token": "sv=1&sig=hidden"}, "no usable token"),
    ],
)
async def test_what_shows_nothing_to_a_container_is_refused_with_a_sentence(
    values: dict[str, str], words: str
) -> None:
    problem = await refusal(secret(**values), **AZURE)
    assert (problem.reason, words in problem.message) == ("SecretIncomplete", True), problem.message
    assert "hidden" not in problem.message


GOOGLE = {"uri": "gs://bucket/data", **NAMED}


async def test_a_service_account_is_taken_from_its_key_file() -> None:
    answer = secret(**{"key.json": key_file()})
    keys = await read_credentials(context=context(SecretApi(answer)), namespace="n", spec=spec(**GOOGLE))
    assert isinstance(keys, Credentials)
    assert keys.access_key_id == ACCOUNT
    assert keys.secret_access_key.startswith("-----BEGIN PRIVATE KEY-----")
    token = await read_credentials(
        context=context(SecretApi(secret(token="ya29.x"))), namespace="n", spec=spec(**GOOGLE)
    )
    assert token == Credentials(access_key_id="", secret_access_key="", session_token="ya29.x")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"accessKeyId": "a", "secretAccessKey": "b"}, "neither a usable key.json"),
        ({"token": "two words"}, "neither a usable key.json"),
        ({"key.json": "secret but no JSON"}, "is no JSON as Google writes it"),
        ({"key.json": '["secret"]'}, "is no JSON as Google writes it"),
        ({"key.json": key_file(type="external_account")}, "is of the type external_account"),
        ({"key.json": key_file(type="secret")}, "is of no type that is known"),
        ({"key.json": key_file(client_email="")}, "has no client_email"),
        ({"key.json": key_file(private_key="secret")}, "no private key in PEM"),
    ],
)
async def test_a_key_file_that_cannot_be_used_is_refused_with_a_sentence(
    values: dict[str, str], words: str
) -> None:
    problem = await refusal(secret(**values), **GOOGLE)
    assert problem.reason == "SecretIncomplete"
    assert words in problem.message
    assert "Secret n/keys (spec.source.secretRef)" in problem.message
    assert "secret but" not in problem.message
