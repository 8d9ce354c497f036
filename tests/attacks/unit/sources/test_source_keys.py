"""The question to a store whether it takes a Dataset's keys: what its answers say of them, and what they do not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.attacks.unit.sources.listed_store import KEYS, Store, listing
from tests.support.waiting import eventually_async

from tdcs.listing.source_keys import SourceKeys
from tdcs.model.cache_engine import NO_KEYS, KeysRefusedError, Source


def asked(status: int, text: bytes = b"", **headers: str) -> bool:
    """What a store with this answer says of the keys."""
    with Store(page=lambda _: (status, headers, text)) as store:
        answer = asyncio.run(SourceKeys()(store.source, namespace="n"))
        (path,) = store.asked
        assert "max-keys=1&" in path
        assert "prefix=many%2F" in path
        assert KEYS.access_key_id in path
        assert KEYS.secret_access_key not in path
        return answer


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>"),
        (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"),
        (403, b""),
        (401, b""),
        (400, b"<Error><Code>ExpiredToken</Code></Error>"),
    ],
)
@pytest.mark.threat("revoked-keys-mounted")
def test_keys_that_a_store_refuses_are_said_with_the_remedy(status: int, text: bytes) -> None:
    with pytest.raises(KeysRefusedError) as refusal:
        asked(status, text)
    assert "spec.source.secretRef" in str(refusal.value)
    assert KEYS.secret_access_key not in str(refusal.value)


def test_a_page_is_an_answer_that_takes_the_keys() -> None:
    assert asked(200, listing(0, names=1, more=False))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>"),
        (400, b"<Error><Code>InvalidRequest</Code></Error>"),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>"),
        (503, b"<Error><Code>SlowDown</Code></Error>"),
    ],
)
@pytest.mark.threat("revoked-keys-mounted")
def test_what_is_no_word_about_the_keys_is_none(status: int, text: bytes) -> None:
    assert not asked(status, text)


def test_a_redirection_is_no_word_and_not_followed() -> None:
    with Store(page=lambda _: (200, {}, b"")) as elsewhere:
        assert not asked(307, Location=f"http://127.0.0.1:{elsewhere.port}/")
        assert not elsewhere.asked


@pytest.mark.parametrize(
    ("options", "times"), [({}, 2), ({"region": "eu-central-1"}, 2), ({"region": "eu-west-1"}, 1)]
)
def test_a_bucket_that_names_another_region_is_asked_once_more_in_that(
    options: dict[str, str], times: int
) -> None:
    def page(_: int) -> tuple[int, dict[str, str], bytes]:
        is_in_region = "%2Feu-west-1%2Fs3" in store.asked[-1]
        return 200 if is_in_region else 400, {"x-amz-bucket-region": "eu-west-1"}, b""

    with Store(page=page) as store:
        source = replace(store.source, options={**store.source.options, **options})
        assert asyncio.run(SourceKeys()(source, namespace="n"))
        assert len(store.asked) == times


@pytest.mark.threat("revoked-keys-mounted")
def test_a_store_that_is_away_says_nothing_of_the_keys() -> None:
    away = Source(
        uri="s3://bucket/many",
        options={"endpoint": "http://127.0.0.1:1", "pathStyle": "true"},
        credentials=KEYS,
    )
    assert not asyncio.run(SourceKeys()(away, namespace="n"))


def test_a_folder_has_no_keys() -> None:
    assert not asyncio.run(SourceKeys()(Source(uri="file:///nfs/pictures"), namespace="n"))


@pytest.mark.threat("slow-key-answers")
async def test_slow_stores_of_one_namespace_keep_no_other_namespace_from_an_answer() -> None:
    questions = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal questions
        questions += 1
        await reader.read()  # until who asks goes
        writer.close()

    hung = await asyncio.start_server(silent, "127.0.0.1", 0)
    endpoint = f"http://127.0.0.1:{hung.sockets[0].getsockname()[1]}"
    slow = Source(
        uri="s3://bucket/many", options={"endpoint": endpoint, "pathStyle": "true"}, credentials=KEYS
    )
    ask = SourceKeys()
    tasks = [asyncio.create_task(ask(slow, namespace="slow")) for _ in range(100)]
    await eventually_async(lambda: questions >= 8, deadline=20, interval=0.005)
    with Store(page=lambda _: (200, {}, listing(0, names=1, more=False))) as store:
        async with asyncio.timeout(10):
            assert await ask(store.source, namespace="other")
    assert not any(task.done() for task in tasks)
    for slow_task in tasks:
        slow_task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    hung.close()


def test_a_bucket_that_is_public_no_more_refuses_who_has_no_keys() -> None:
    """A Dataset of which somebody takes the Secret's name away reads nothing on by the keys of others."""
    with Store(page=lambda _: (403, {}, b"<Error><Code>AccessDenied</Code></Error>")) as store:
        with pytest.raises(KeysRefusedError, match="no keys"):
            asyncio.run(SourceKeys()(replace(store.source, credentials=NO_KEYS), namespace="n"))
        assert "X-Amz-Signature" not in store.asked[0]
