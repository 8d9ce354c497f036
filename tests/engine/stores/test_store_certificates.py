"""A host that answers in a store's place, as after a name has changed: over https its certificate gives it away."""

from __future__ import annotations

import ssl
import uuid

import pytest
import trustme
from tests.engine.stores.flat_store import Answers, flat_store

from tdcs.alluxio import AlluxioEngine
from tdcs.model.cache_engine import Credentials, Source, SourceError


async def mount_and_list(engine: AlluxioEngine, path: str, source: Source) -> None:
    await engine.mount(path=path, source=source)
    async for _ in engine.files(path=path):
        pass


@pytest.mark.threat("certificate-of-another")
async def test_a_host_whose_certificate_nobody_vouches_for_is_asked_for_nothing(
    engine: AlluxioEngine, network: str
) -> None:
    address, answers = f"{network}.9", Answers()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(address).configure_cert(tls)
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    with flat_store(address=address, objects={"data/a": 300}, answers=answers, tls=tls) as endpoint:
        source = Source(
            uri=f"s3://b-{uuid.uuid4().hex}/data",
            options={"endpoint": endpoint, "pathStyle": "true"},
            credentials=Credentials(access_key_id="a", secret_access_key="b"),
        )
        try:
            with pytest.raises(SourceError) as refusal:
                await mount_and_list(engine, path, source)
        finally:
            await engine.unmount(path=path)
    assert "the endpoint shows no certificate of its name that the cache trusts" in str(refusal.value)
    assert not answers.requests, "neither a request nor a signature reaches it"


async def test_a_host_is_read_whose_certificate_an_authority_of_the_rules_vouches_for(
    engine: AlluxioEngine, network: str
) -> None:
    address, answers, authority = f"{network}.9", Answers(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(address).configure_cert(tls)
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    with flat_store(address=address, objects={"data/a": 300}, answers=answers, tls=tls) as endpoint:
        source = Source(
            uri=f"s3://b-{uuid.uuid4().hex}/data",
            options={"endpoint": endpoint, "pathStyle": "true"},
            credentials=Credentials(access_key_id="a", secret_access_key="b"),
            ca_bundle=authority.cert_pem.bytes().decode(),
        )
        try:
            await mount_and_list(engine, path, source)
        finally:
            await engine.unmount(path=path)
    assert answers.requests
