"""Buckets without keys, with session tokens, and whose requester pays: Alluxio's requests carry what is meant."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.engine.block_reads import read_block
from tests.engine.conftest import LARGE
from tests.engine.servers import AlluxioCluster
from tests.engine.stores.flat_store import Answers, flat_store

from tdcs.alluxio import AlluxioEngine
from tdcs.api import names
from tdcs.model.cache_engine import NO_KEYS, Credentials, Source

TEMPORARY = Credentials(
    access_key_id="ASIAEXAMPLE", secret_access_key="secret-5d1", session_token="token/+=77aa"
)
KEYS = Credentials(access_key_id="AKIAEXAMPLE", secret_access_key="secret-5d1")


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def endpoint(network: str, answers: Answers) -> Iterator[str]:
    with flat_store(address=f"{network}.9", objects={"data/a": 300}, answers=answers) as found:
        yield found


@pytest.mark.parametrize(
    ("keys", "options", "headers"),
    [
        (NO_KEYS, {}, {"Authorization": None, "x-amz-security-token": None}),
        (TEMPORARY, {}, {"x-amz-security-token": TEMPORARY.session_token, "x-amz-request-payer": None}),
        (KEYS, {"requesterPays": "true"}, {"x-amz-request-payer": "requester", "x-amz-security-token": None}),
    ],
    ids=["no keys", "session token", "requester pays"],
)
async def test_master_and_workers_read_a_bucket_with_the_credentials_that_are_meant(
    engine: AlluxioEngine,
    alluxio: AlluxioCluster,
    endpoint: str,
    answers: Answers,
    keys: Credentials,
    options: dict[str, str],
    headers: dict[str, str | None],
) -> None:
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    source = Source(
        uri=f"s3://b-{uuid.uuid4().hex}/data",
        options={"endpoint": endpoint, "pathStyle": "true", **options},
        credentials=keys,
    )
    await engine.mount(path=path, source=source)
    try:
        (block,) = [block async for page in engine.files(path=path) for file in page for block in file.blocks]
        worker = f"{alluxio.worker_hosts[LARGE]}:{names.WORKER_RPC_PORT}"
        assert await read_block(worker, block=block, path=block.source_path, length=300) == b"x" * 300
        assert answers.headers
        for sent in answers.headers:
            assert {name: sent.get(name) for name in headers} == headers
            signed = sent.get("Authorization")
            assert keys is NO_KEYS or f"Credential={keys.access_key_id}/" in str(signed)
    finally:
        await engine.unmount(path=path)
