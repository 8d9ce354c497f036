"""Azurite: a server of Azure's Blob API, with its blobs in memory.

Tests write to it with a shared access signature of the account, made here and not by the code that is tested.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from urllib3 import PoolManager, Retry
from urllib3.exceptions import HTTPError

from tdcs_local import programs

ACCOUNT = "pictures"
KEY = base64.b64encode(b"the key of an account of tests, and of no other").decode()
_VERSION = "2019-12-12"


def shared_access(*, permissions: str = "rl", expiry: str = "2099-01-01T00:00:00Z", key: str = KEY) -> str:
    """A shared access signature for all containers of the account."""
    fields = {"sp": permissions, "ss": "b", "srt": "sco", "st": "", "se": expiry, "sip": "", "spr": ""}
    text = "\n".join([ACCOUNT, *fields.values(), _VERSION, ""])
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    query = {"sv": _VERSION, **{name: value for name, value in fields.items() if value}}
    return urlencode({**query, "sig": base64.b64encode(digest).decode()})


class AzureStore:
    """A running server. `endpoint`: its URL, without the account."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._http = PoolManager(maxsize=8, retries=Retry(2, backoff_factor=0.1))

    def make_container(self, name: str, *, public: bool = False) -> None:
        headers = {"x-ms-blob-public-access": "container"} if public else {}
        self._send("PUT", f"{name}?restype=container", headers=headers)

    def put(self, container: str, name: str, content: bytes, *, headers: Mapping[str, str] = {}) -> None:
        """Put a blob, with further headers of the request."""
        place = f"{container}/{quote(name, safe='/')}"
        self._send("PUT", place, content, headers={"x-ms-blob-type": "BlockBlob", **headers})

    def set_tier(self, container: str, name: str, tier: str) -> None:
        self._send("PUT", f"{container}/{name}?comp=tier", headers={"x-ms-access-tier": tier})

    def delete(self, container: str, name: str) -> None:
        self._send("DELETE", f"{container}/{name}")

    def _send(self, method: str, place: str, body: bytes = b"", *, headers: Mapping[str, str] = {}) -> None:
        sign = "&" if "?" in place else "?"
        url = f"{self.endpoint}/{ACCOUNT}/{place}{sign}{shared_access(permissions='rwdlacup')}"
        answer = self._http.request(method, url, body=body, headers={"x-ms-version": _VERSION, **headers})
        assert answer.status < 300, (method, place, answer.status, answer.data)


@contextmanager
def azure_store(folder: Path, *, host: str = "127.0.0.1") -> Iterator[AzureStore]:
    """A server of this test run. `folder`: for its log. `host`: the address at which it listens."""
    program = programs.ensure("azurite") / "node_modules/azurite/dist/src/blob/main.js"
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    endpoint = f"http://{host}:{port}"

    def is_ready() -> bool:
        try:
            return PoolManager().request("GET", endpoint, retries=False).status > 0
        except HTTPError:
            return False

    process = Process(
        name="azurite",
        argv=[
            *("node", str(program), "--blobHost", host, "--blobPort", str(port)),
            *("--inMemoryPersistence", "--silent", "--disableTelemetry"),
        ],
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        log=folder / "azurite.log",
        ready=is_ready,
        start_deadline=120,
    )
    process.start()
    try:
        yield AzureStore(endpoint)
    finally:
        process.kill()
