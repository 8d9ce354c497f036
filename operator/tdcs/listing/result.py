"""What a listing gives: the digest of the manifest that it wrote, the sums that decisions need, or why it failed."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tdcs.model.agent_state import SourceAccess
from tdcs.model.cache_engine import (
    Credentials,
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    MountConflictError,
    NoSuchPathError,
    Source,
    SourceError,
)
from tdcs.model.file_blocks import (
    NO_LARGE_FILE,
    WHOLE_BLOCKS,
    Cut,
    LargeFile,
    block_count_of_all,
    large_file,
)
from tdcs.model.file_folders import folder_count_of_all
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import Skipped, Totals
from tdcs.trust.identity import Identity
from tdcs.trust.roles import Role


class Listed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One version of a mount.

    Attributes:
        digest: of its manifest, which is in the folder.
        totals: sums over all files.
        size: the same as limits count it.
        skipped_count: entries of the source that cannot be files of a folder tree; `skipped` are the first of them.
    """

    digest: str
    totals: Totals
    size: SourcesSize = SourcesSize()
    skipped_count: int = 0
    skipped: tuple[Skipped, ...] = ()
    seconds: float = 0.0


class Early(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a listing that goes on has so far, see `tdcs.listing.early_manifests`."""

    listed: Listed


def listed(manifest: Manifest, *, seconds: float = 0.0) -> Listed:
    totals, folders = manifest.totals(), folder_count_of_all(manifest.folder_lengths[1:])
    return Listed(
        digest=manifest.digest,
        totals=totals,
        size=SourcesSize(
            # Limits count those, too, that no folder tree can hold.
            files=block_count_of_all(manifest.lengths) + folders + manifest.header.skipped_count,
            folders=folders,
            bytes=totals.block_bytes,
            largest=_largest(manifest),
        ),
        skipped_count=manifest.header.skipped_count,
        skipped=manifest.header.skipped,
        seconds=seconds,
    )


def _largest(manifest: Manifest) -> LargeFile:
    if not len(manifest):
        return NO_LARGE_FILE
    file = int(manifest.lengths.argmax())
    return large_file(int(manifest.lengths[file]), manifest.file_path(file).decode("utf-8", "replace"))


MANIFEST_PATH: Final = "/v1/manifests/"
"""Where a server has its manifests; the digest follows."""


class ManifestUnavailableError(Exception):
    """A manifest could not be fetched from anywhere. The text names it and the reason of each place."""


class ManifestTooLongError(ManifestUnavailableError):
    """Some place has it, and it is longer than what is taken."""


def operator_url(*, address: str, secure: bool) -> str:
    """Where the operator at `host:port` is asked for manifests.

    By TLS the URL names, as its user, the role that the certificate there must have: addresses of the operator come and
    go, and are in no certificate.
    """
    return f"https://{Role.OPERATOR}@{address}" if secure else f"http://{address}"


def manifest_url(*, address: str, digest: str, secure: bool = False) -> str:
    return f"{operator_url(address=address, secure=secure)}{MANIFEST_PATH}{digest}"


_ERRORS = {
    error_type.__name__: error_type
    for error_type in (
        EngineError,
        EngineUnavailableError,
        LimitExceededError,
        SourceError,
        KeysRefusedError,
        MountConflictError,
        NoSuchPathError,
    )
}


LISTING_MEMORY: Final = 512 << 20
"""What is listed is on the disk: ten million names take as much as ten thousand, far less than this."""


def access_of(source: Source) -> SourceAccess:
    """A source as one process tells it another."""
    keys = source.credentials
    return SourceAccess(
        uri=source.uri,
        options=source.reached_options,
        access_key_id=keys.access_key_id if keys is not None else "",
        secret_access_key=keys.secret_access_key if keys is not None else "",
        session_token=keys.session_token if keys is not None else "",
        ca_bundle=source.ca_bundle,
        redirects=source.redirects,
        proxy=source.proxy,
    )


def source_of(access: SourceAccess) -> Source:
    """The reverse of `access_of`."""
    keys = Credentials(
        access_key_id=access.access_key_id,
        secret_access_key=access.secret_access_key,
        session_token=access.session_token,
    )
    return Source(
        uri=access.uri,
        options=access.options,
        credentials=keys if keys.secrets else None,
        ca_bundle=access.ca_bundle,
        redirects=access.redirects,
        proxy=access.proxy,
    )


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An `EngineError` on its way from one process to another, by a pipe that only these two have."""

    kind: str
    attempted: str
    reason: str
    remedy: str
    path: str | None
    worker: str | None
    retryable: bool

    @classmethod
    def of(cls, error: EngineError) -> "Failed":
        """An error as a message; a subclass that is not known here becomes the nearest one that is."""
        kind = next(ancestor.__name__ for ancestor in type(error).__mro__ if ancestor.__name__ in _ERRORS)
        return cls(
            kind=kind,
            attempted=error.attempted,
            reason=error.reason,
            remedy=error.remedy,
            path=error.path,
            worker=error.worker,
            retryable=error.retryable,
        )

    def error(self, *, secrets: Iterable[str] = ()) -> EngineError:
        """The error again, without these texts."""
        return _ERRORS.get(self.kind, EngineError)(
            attempted=self.attempted,
            reason=self.reason,
            remedy=self.remedy,
            path=self.path,
            worker=self.worker,
            retryable=self.retryable,
            secrets=secrets,
        )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing process is to do: list a source into the folder.

    Attributes:
        path: of the mount.
        identity: what it shows to agents; None: its connections are plain.
        confined: see `ManifestFolder`.
        nodes: URL of each agent by its node: they list folders.
        expected: so many nodes have or shall have an agent.
        cut: how files are cut into blocks.
        memory: bytes that the process may allocate.
        early: whether it also gives what it has while it goes on.
    """

    path: str
    folder: str
    source: SourceAccess
    limit: ListingLimit | None = None
    identity: Identity | None = None
    confined: bool = False
    nodes: dict[str, str] = {}
    expected: int = 0
    cut: Cut = WHOLE_BLOCKS
    memory: int = LISTING_MEMORY
    early: bool = False


FRAME_HEAD: Final = 4
"""Bytes before each message of a listing process: the message's length, the highest byte first."""


def frame(message: Early | Listed | Failed) -> bytes:
    """A message of a listing process as it goes through its standard output."""
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(FRAME_HEAD, "big") + content
