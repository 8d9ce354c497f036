"""Artifacts in an S3 bucket. The manifest is written last, so an artifact without one is not there yet."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import S3Store

from tdcs_train.artifacts.manifest import FILE, ArtifactError, Manifest, decode, encode
from tdcs_train.errors import InputError

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Environment variables that name the S3 server where no endpoint is given."""


class BucketStore:
    """Artifacts below `s3://bucket/prefix`. Keys and region come from the usual AWS_* variables."""

    def __init__(self, url: str, *, endpoint: str | None = None) -> None:
        # obstore ends with a panic of Rust, which is no Exception, for an address that it cannot read.
        if endpoint is not None:
            check_endpoint(endpoint)
        else:
            for variable in ENDPOINT_VARIABLES:
                if address := os.environ.get(variable):
                    check_endpoint(address, source=f" in the environment variable {variable}")
        self.url = url.rstrip("/")
        plain = endpoint is not None and endpoint.startswith("http://")
        with self._explained("opened"):
            self.store = S3Store.from_url(
                url,
                config={"endpoint": endpoint} if endpoint else None,
                client_options={"allow_http": plain, "timeout": "60s"},
                retry_config={"max_retries": 3},
            )

    def location(self, key: str) -> str:
        return f"{self.url}/{key}"

    def find(self, key: str) -> Manifest | None:
        with self._explained("read"):
            try:
                manifest = decode(bytes(self.store.get(f"{key}/{FILE}").bytes()))
                sizes = {
                    spec.name: self.store.head(f"{key}/{spec.name}")["size"]
                    for spec in (manifest.library, manifest.parameters)
                }
            except (FileNotFoundError, ArtifactError):
                return None
        whole = all(sizes[spec.name] == spec.bytes for spec in (manifest.library, manifest.parameters))
        return manifest if whole and manifest.key == key else None

    def publish(self, manifest: Manifest, files: Mapping[str, Path]) -> bool:
        damaged = self.find(manifest.key) is None
        with self._explained("written"):
            for name, path in files.items():
                self.store.put(f"{manifest.key}/{name}", path)
            where = f"{manifest.key}/{FILE}"
            try:
                self.store.put(where, encode(manifest), mode="create")
            except (AlreadyExistsError, NotSupportedError):
                # Another writer was first, or a damaged manifest is in the way, or the server knows no conditions.
                # Files are named by their digests: whichever manifest stays, its files are there.
                if damaged and self.find(manifest.key) is None:
                    self.store.put(where, encode(manifest))
                    return True
                return False
        return True

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
            raise InputError(
                f"{self.url} cannot be {what}: {reason}; check the bucket's name, --endpoint and the AWS_* variables"
            ) from error


def check_endpoint(endpoint: str, *, source: str = "") -> None:
    """Check that an endpoint is the address of a server.

    Args:
        endpoint: such as `http://HOST:PORT`.
        source: where it was found, for the message.

    Raises:
        InputError: it is no such address.
    """
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port  # reading the port checks it
        sound = parts.scheme in {"http", "https"} and bool(host) and endpoint.split() == [endpoint]
    except ValueError:
        sound = False
    if not sound:
        raise InputError(
            f"the endpoint {endpoint or repr(endpoint)}{source} is no address of a server: "
            "write --endpoint http://HOST:PORT or https://HOST"
        )
