"""Tokens of ServiceAccounts are exchanged for what a store takes, and shown to nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.support.programs.token_service import AMAZON, ROLE, TokenIssuer, TokenService, token_service

from tdcs.decide.workload_identity import Provider, TokenExchange
from tdcs.listing.token_exchange import ExchangeError, IssuedKeys, exchange_token

POOL = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"
GOOGLE = f"https:{POOL}"
AZURE = "api://AzureADTokenExchange"
ISSUER = TokenIssuer()
PLANS = {
    "amazon": (Provider.AMAZON, AMAZON, ROLE, ""),
    "google": (Provider.GOOGLE, GOOGLE, "", POOL),
    "google as an account": (Provider.GOOGLE, GOOGLE, "reader@p.iam.gserviceaccount.com", POOL),
    "azure": (Provider.AZURE, AZURE, "client", "tenant"),
}


@pytest.fixture
def service() -> Iterator[TokenService]:
    trusts = {ROLE: ("n:reader", AMAZON), POOL: ("n:reader", GOOGLE), "client": ("n:reader", AZURE)}
    with token_service(ISSUER.public_key, trusts=trusts) as running:
        yield running


async def exchange(
    service: TokenService, kind: str, *, account: str = "reader", seconds: int = 600, audience: str = ""
) -> IssuedKeys:
    provider, default_audience, role, name = PLANS[kind]
    plan = TokenExchange(
        provider=provider, url=service.endpoint, audience=default_audience, role=role, provider_name=name
    )
    token = ISSUER.issue(
        namespace="n", account=account, audience=audience or default_audience, seconds=seconds
    )
    return await exchange_token(
        plan, token=token, account=f"n/{account}", ca_bundle="", proxy="", now=datetime.now(UTC)
    )


@pytest.mark.parametrize("kind", PLANS)
async def test_a_token_becomes_keys_for_as_long_as_the_service_says(service: TokenService, kind: str) -> None:
    service.seconds = 1800.0
    issued = await exchange(service, kind)
    last = service.given[-1]
    assert issued.keys.session_token == (
        last.get("SessionToken") or last.get("access_token") or last["accessToken"]
    )
    assert issued.keys.access_key_id == last.get("AccessKeyId", "")
    assert 1780 < issued.seconds < 1801
    (path, form), *_ = service.asked
    if kind == "azure":
        assert path == "/tenant/oauth2/v2.0/token"
        assert form["scope"] == "https://storage.azure.com/.default"
    if kind.startswith("google"):
        assert form["scope"].endswith("cloud-platform" if "account" in kind else "devstorage.read_only")
    if kind == "google as an account":
        path, form = service.asked[1]
        assert path.endswith("/reader@p.iam.gserviceaccount.com:generateAccessToken")
        assert "devstorage.read_only" in form["scope"]


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"account": "stranger"}, "n:stranger is not trusted"),
        ({"seconds": -1}, "it has expired"),
        ({"audience": "https://kubernetes.example"}, "another audience"),
    ],
)
async def test_a_refusal_is_what_the_service_says(
    service: TokenService, kind: str, wrong: dict[str, str], said: str
) -> None:
    with pytest.raises(ExchangeError, match=said) as refused:
        await exchange(service, kind, **wrong)  # type: ignore[arg-type]
    assert refused.value.refused
    assert not set(service.asked[-1][1].values()) & set(str(refused.value).split())


@pytest.mark.parametrize("kind", PLANS)
async def test_no_token_stands_in_a_message(service: TokenService, kind: str) -> None:
    def echo(_: object) -> tuple[int, str]:
        longest = max((text for _, form in service.asked for text in form.values()), key=len, default="")
        return 403, f"I do not know {longest}"

    service.failure = (403, "first")
    with pytest.raises(ExchangeError):
        await exchange(service, kind)
    service.failure = echo(None)
    with pytest.raises(ExchangeError) as refused:
        await exchange(service, kind)
    assert max(service.asked[0][1].values(), key=len)[-40:] not in str(refused.value)


@pytest.mark.parametrize("kind", PLANS)
async def test_a_redirection_is_not_followed(service: TokenService, kind: str) -> None:
    with token_service(service.key, trusts=service.trusts) as elsewhere:
        service.failure = (307, f"{elsewhere.endpoint}/")
        with pytest.raises(ExchangeError, match="no token is shown to another host") as refused:
            await exchange(service, kind)
    assert elsewhere.asked == []
    assert refused.value.refused


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize(
    "failure", [(503, "busy"), (429, "slowly"), (200, "<html>"), (200, "{}"), (200, "[]")]
)
async def test_an_answer_without_keys_is_no_refusal(
    service: TokenService, kind: str, failure: tuple[int, str]
) -> None:
    service.failure = failure
    with pytest.raises(ExchangeError) as silent:
        await exchange(service, kind)
    assert not silent.value.refused


@pytest.mark.parametrize("seconds", [0.0, -60.0, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", PLANS)
async def test_keys_whose_time_is_over_are_none(service: TokenService, kind: str, seconds: float) -> None:
    answers = {
        "amazon": "<AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey><SessionToken>c</SessionToken>"
        "<Expiration>2020-01-01T00:00:00Z</Expiration>",
        "google as an account": json.dumps(
            {"access_token": "a", "accessToken": "a", "expireTime": "2020-01-01T00:00:00Z"}
        ),
    }
    service.failure = (200, answers.get(kind, json.dumps({"access_token": "a", "expires_in": seconds})))
    with pytest.raises(ExchangeError, match="compare the operator's clock") as refused:
        await exchange(service, kind)
    assert not refused.value.refused


@pytest.mark.parametrize("code", ["Throttling", "IDPCommunicationError"])
async def test_a_service_that_asks_for_patience_refuses_nothing(service: TokenService, code: str) -> None:
    service.failure = (400, f"<Error><Code>{code}</Code><Message>again later</Message></Error>")
    with pytest.raises(ExchangeError, match=code) as refused:
        await exchange(service, "amazon")
    assert not refused.value.refused


async def test_a_service_that_is_away_is_named(service: TokenService) -> None:
    plan = TokenExchange(
        provider=Provider.AMAZON, url="http://127.0.0.1:1", audience=AMAZON, role=ROLE, provider_name=""
    )
    with pytest.raises(ExchangeError, match=r"http://127\.0\.0\.1:1 cannot be asked"):
        await exchange_token(plan, token="t", account="n/a", ca_bundle="", proxy="", now=datetime.now(UTC))
