"""Signed addresses of objects, compared with those that botocore makes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tdcs.engine.signed_request import object_url

NOW = datetime(2013, 5, 24, tzinfo=UTC)


def parameters(url: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in url.partition("?")[2].split("&"))


@pytest.mark.parametrize("key", ["plain.txt", "data/tab\tand\nline ü?%+&=#.bin"])
def test_the_signature_is_that_of_botocore_for_any_name(key: str) -> None:
    def ours() -> str:
        return object_url(
            endpoint="http://127.0.0.1:7070",
            bucket="bucket",
            key=key,
            region="us-east-1",
            path_style=True,
            access_key_id="AKIAEXAMPLE",
            secret_access_key="secret",
            now=datetime.now(UTC),
        )

    for _ in range(5):  # the second may turn between the two
        mine = ours()
        request = AWSRequest(method="GET", url=mine.partition("?")[0])
        pair = Credentials("AKIAEXAMPLE", "secret")
        S3SigV4QueryAuth(pair, "s3", "us-east-1", expires=3600).add_auth(request)
        if parameters(request.url)["X-Amz-Date"] == parameters(mine)["X-Amz-Date"]:
            break
    assert parameters(mine) == parameters(request.url)


def test_a_bucket_that_asks_for_no_keys_is_asked_without_a_signature() -> None:
    url = object_url(
        endpoint="",
        bucket="open-data",
        key="a b",
        region="eu-central-1",
        path_style=False,
        access_key_id="",
        secret_access_key="",
        now=NOW,
    )
    assert url == "https://open-data.s3.eu-central-1.amazonaws.com/a%20b"
