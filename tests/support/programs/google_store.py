"""fake-gcs-server: a server of Google Cloud Storage's API, with its objects in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from urllib3 import PoolManager, Retry
from urllib3.exceptions import HTTPError

from tdcs_local import programs

ACCOUNT = "reader@project.iam.gserviceaccount.com"


class GoogleStore:
    """A running server. `endpoint`: its URL."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._http = PoolManager(maxsize=8, retries=Retry(2, backoff_factor=0.1))

    def make_bucket(self, name: str) -> None:
        self._send("POST", "/storage/v1/b?project=test", json.dumps({"name": name}).encode())

    def put(self, bucket: str, name: str, content: bytes, *, encoding: str = "") -> None:
        """Put an object. `encoding`: its Content-Encoding, in which the content is given."""
        packed = f"&contentEncoding={encoding}" if encoding else ""
        place = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}{packed}"
        self._send("POST", place, content)

    def delete(self, bucket: str, name: str) -> None:
        self._send("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")

    def _send(self, method: str, place: str, body: bytes | None = None) -> None:
        answer = self._http.request(method, f"{self.endpoint}{place}", body=body)
        assert answer.status < 300, (method, place, answer.status, answer.data)


@contextmanager
def google_store(
    folder: Path, *, files: Mapping[str, bytes] = {}, host: str = "127.0.0.1"
) -> Iterator[GoogleStore]:
    """A server of this test run.

    Args:
        folder: for its log, and for files that it begins with.
        files: these, by `BUCKET/NAME`.
        host: the address at which it listens.
    """
    program = programs.ensure("fake-gcs-server") / "fake-gcs-server"
    (port,) = free_ports(1)
    data = folder / "buckets"
    data.mkdir(parents=True)
    for name, content in files.items():
        file = data / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    endpoint = f"http://{host}:{port}"

    def is_ready() -> bool:
        try:
            return (
                PoolManager().request("GET", f"{endpoint}/_internal/healthcheck", retries=False).status == 200
            )
        except HTTPError:
            return False

    process = Process(
        name="fake-gcs-server",
        argv=[
            *(str(program), "-scheme", "http", "-host", host, "-port", str(port)),
            *(
                "-backend",
                "memory",
                "-data",
                str(data),
                "-public-host",
                f"{host}:{port}",
                "-log-level",
                "error",
            ),
        ],
        log=folder / "fake-gcs-server.log",
        ready=is_ready,
        start_deadline=120,
    )
    process.start()
    try:
        yield GoogleStore(endpoint)
    finally:
        process.kill()


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_file(**changed: str) -> str:
    """The key file of a service account, with members that are changed."""
    pem = private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return json.dumps(
        {
            "type": "service_account",
            "project_id": "project",
            "private_key_id": "0123456789abcdef",
            "private_key": pem,
            "client_email": ACCOUNT,
            "token_uri": "http://169.254.169.254/token",
            **changed,
        }
    )
