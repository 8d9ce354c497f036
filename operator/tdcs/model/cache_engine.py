"""What the rest of the product knows of a cache engine: one narrow asynchronous protocol over plain, frozen
values.

`NativeEngine` of the operator implements it, and so does the tests' engine in memory.

Words: a *path* is absolute in the engine's own name space (`/datasets/<identity>`); a *source* is where the
data is at home; a *worker* is one cache process, named by its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, Self, runtime_checkable

from tdcs.api.source_uri import canonical_endpoint, is_folder, is_native_only
from tdcs.model.redaction import redact


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A key pair for a source. Never printed: `repr` hides all of it, and every `EngineError` replaces it in its text.

    Attributes:
        access_key_id: The public half; hidden all the same, since it names an account.
        session_token: of a pair that is temporary; empty for others.
        owner: who has them, where they are renewed all the time: a mount is called by it, and not by them.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    owner: str = field(default="", repr=False, compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that must not appear in a log line, an event or a status."""
        return tuple(
            text for text in (self.secret_access_key, self.session_token, self.access_key_id) if text
        )


NO_KEYS: Final = Credentials(access_key_id="", secret_access_key="")
"""The credentials of a bucket that is read without any. They are asked about as others are: a bucket that is public no
more takes them no more."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a dataset is at home.

    Attributes:
        uri: `s3://bucket/prefix`, `file:///folder` on every cache node, a bucket of Google Cloud
            Storage (`gs://bucket/prefix`), a container of Azure (`az://account/container/prefix`), or a web source
            (`http`, `https`, `hf`).
        options: The friendly names of a Dataset's `spec.source.options`: for S3 `endpoint` (URL), `region`,
            `pathStyle` and `requesterPays` ("true" or "false"). An engine refuses names it does not know, with the list
            of those it does.
        credentials: The key pair, `NO_KEYS` for a public source, or None for a folder. Of a web source a user and a
            password, or a session token alone, which is sent as a bearer token; of Google Cloud Storage a service
            account, its private key in PEM, and the id of that key as session token, or a bearer token alone;
            of Azure the account's key alone, or as session token a shared access signature or a bearer token.
        address: The only address at which the endpoint's host is to be asked; empty: whatever its name stands for.
        ca_bundle: Authorities in PEM that are trusted for its store next to the public ones.
        redirects: Endpoints, by which a web source may redirect its readers although they are inside the cluster.
        proxy: An HTTP proxy through which the store is asked; empty: none.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    credentials: Credentials | None = field(default=None, repr=False)
    address: str = ""
    ca_bundle: str = field(default="", repr=False)
    redirects: tuple[str, ...] = ()
    proxy: str = ""

    @property
    def reached_options(self) -> dict[str, str]:
        """The options with the endpoint as it is reached: in its one form, by `address` where there is one.

        A client looks a host with a dot at its end up outside of the cluster's search domains, where `store.team.svc.`
        is no name, although rules and checks take both forms for one.

        Raises:
            ValueError: As `canonical_endpoint`.
        """
        endpoint = self.options.get("endpoint")
        if not endpoint or is_folder(self.uri):
            return dict(self.options)
        canonical = canonical_endpoint(endpoint)
        reached = {**self.options, "endpoint": str(canonical.at(self.address) if self.address else canonical)}
        if self.address and is_native_only(self.uri):
            reached["host"] = str(canonical).partition("://")[2]
        return reached


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """One cache worker.

    Attributes:
        name: The node's name.
        address: `host:port` of its RPC service.
        capacity_bytes: What it may hold; 0 when it is lost.
        used_bytes: What it holds, over all mounts.
        live: False once its heartbeats have stopped.
        target: The best target that its processor runs, see `tdcs.api.targets`; empty where that is not known.
    """

    name: str
    address: str
    capacity_bytes: int
    used_bytes: int
    live: bool
    target: str = ""


class EngineError(Exception):
    """An engine call failed. `str()` of it names the object, what was attempted, why it failed and what to do
    next.

    Args:
        attempted: What was tried, as a clause: `mount s3://bucket/data at /datasets/1f`.
        reason: Why it failed, in the engine's words.
        remedy: What a person can do about it.
        path: The engine path concerned, if any.
        worker: The worker concerned, if any.
        retryable: Whether the same call can succeed later without anything being changed.
        secrets: Texts to hide wherever they occur in the other arguments.
    """

    def __init__(
        self,
        *,
        attempted: str,
        reason: str,
        remedy: str,
        path: str | None = None,
        worker: str | None = None,
        retryable: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        hidden = tuple(secrets)
        self.attempted = redact(text=attempted, secrets=hidden)
        self.reason = redact(text=reason, secrets=hidden)
        self.remedy = redact(text=remedy, secrets=hidden)
        self.path = path
        self.worker = worker
        self.retryable = retryable
        super().__init__(f"could not {self.attempted}: {self.reason}. {self.remedy}")


class EngineUnavailableError(EngineError):
    """The master or a worker does not answer, or is starting. Always retryable."""


class SourceError(EngineError):
    """The source refused: no such bucket or prefix, wrong credentials, no route, an unknown option."""


class ClaimError(SourceError):
    """A PersistentVolumeClaim that is the source cannot be read now.

    Attributes:
        problem: the reason of the condition.
    """

    problem = ""


class KeysRefusedError(SourceError):
    """The source refused the credentials, or what they may read."""


class MountConflictError(EngineError):
    """The path, or the source, or a parent or child of it, is mounted already in another way."""


class LimitExceededError(EngineError):
    """The source has more files or bytes than a Dataset may have here."""


class NoSuchPathError(EngineError):
    """The path is not mounted or does not exist."""

    @classmethod
    def not_mounted(cls, *, path: str, attempted: str) -> NoSuchPathError:
        """Nothing is mounted at a path of which that was attempted."""
        return cls(
            attempted=attempted,
            reason="nothing is mounted there",
            remedy="Mount the source first",
            path=path,
        )


class NoSuchWorkerError(EngineError):
    """No live worker of that name."""


@runtime_checkable
class Engine(Protocol):
    """The operations on a cache. Any of them may raise `EngineUnavailableError`; all others are named one by
    one.
    """

    async def mount(self, *, path: str, source: Source) -> None:
        """Make `source` readable under `path`. Idempotent: the same source at the same path is success, and
        its credentials, and the address of its store, are brought up to date.

        The source is really asked (a listing), so success means that it can be read; but not where the same is mounted
        with the same keys already, of which success says nothing.

        Raises:
            SourceError: The source cannot be listed with these credentials and options.
            MountConflictError: The path holds another source, or the source (or a parent or child) is mounted
                elsewhere.
        """
        ...

    async def unmount(self, *, path: str) -> None:
        """Drop the mount. A path that is not mounted is success. The source is not touched, and agents are told
        for themselves to drop what they have of it.
        """
        ...

    async def mounts(self) -> Mapping[str, str]:
        """Mounted paths and the URI of each one's source. The engine's own root mount is not among them."""
        ...

    async def stores(self) -> Mapping[str, str]:
        """What tells the store and the selected files of each mount from others (`store_of` of its source's options),
        by path; without the mounts of which it is not known.
        """
        ...

    async def retire(self, *, worker: str) -> None:
        """Take a worker out of service: its blocks count no longer, readers go elsewhere, and it is not live.

        What is on it alone must have been copied away before. It comes back, with what it holds, when its
        process starts again. A worker that is not live is retired already.

        Raises:
            NoSuchWorkerError: No worker of that name was ever seen.
        """
        ...

    async def workers(self) -> list[WorkerInfo]:
        """All workers that the engine remembers, the lost ones too, ordered by name."""
        ...

    async def set_version(self, *, path: str, version: str) -> None:
        """Publish which version of its source a mounted path has, for everyone who asks for `versions`."""
        ...

    async def versions(self) -> Mapping[str, str]:
        """The version that each path was given last, without those that were given none. Cheap: made to be asked
        every few seconds.
        """
        ...

    async def close(self) -> None:
        """Release connections. The engine object must not be used afterwards. Calling it twice is fine."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...
