"""versitygw: a server of S3 that checks signatures, over a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from tests.support.programs.ports import free_ports, listens_at
from tests.support.programs.processes import Process

from tdcs.model.cache_engine import Credentials
from tdcs_local import programs

OWNER = Credentials(access_key_id="owner-of-all", secret_access_key="secret-of-the-owner-4c1")


class GatewayStore:
    """A running server. `endpoint`: its URL."""

    def __init__(self, endpoint: str, buckets: Path) -> None:
        self.endpoint, self._buckets = endpoint, buckets

    @property
    def client(self) -> Any:
        """A client of the owner of all buckets."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=OWNER.access_key_id,
            aws_secret_access_key=OWNER.secret_access_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )

    def make_public(self, bucket: str) -> None:
        """Have everybody read a bucket, without keys."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        actions = ["s3:GetObject", "s3:ListBucket"]
        statement = {"Effect": "Allow", "Principal": "*", "Action": actions, "Resource": resources}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.client.put_bucket_policy(Bucket=bucket, Policy=policy)

    def put_files(self, bucket: str, files: Mapping[str, bytes]) -> None:
        """Put objects into a bucket that nobody but its owner and administrators may read."""
        for name, content in files.items():
            target = self._buckets / bucket / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


@contextmanager
def gateway_store(
    folder: Path, *, options: Sequence[str] = (), tls: Sequence[str] = (), host: str = "127.0.0.1"
) -> Iterator[GatewayStore]:
    """A server of this test run.

    Args:
        options: of its back end, such as `--versioning-dir`.
        host: the address at which it listens.
        tls: files of a certificate and its key; none: it speaks without TLS.
    """
    program = programs.ensure("versitygw") / "versitygw"
    (port,) = free_ports(1)
    buckets = folder / "buckets"
    buckets.mkdir(parents=True)
    access, secret = OWNER.access_key_id, OWNER.secret_access_key
    endpoint = f"http{'s' if tls else ''}://{host}:{port}"
    secure = ["--cert", tls[0], "--key", tls[1]] if tls else []
    process = Process(
        name="versitygw",
        argv=[
            *(str(program), "--access", access, "--secret", secret, "--port", f"{host}:{port}"),
            *(*secure, "posix", *options, str(buckets)),
        ],
        log=folder / "versitygw.log",
        ready=lambda: listens_at(port, host=host),
        start_deadline=90,
    )
    process.start()
    try:
        yield GatewayStore(endpoint, buckets)
    finally:
        process.kill()
