"""Lists a mount and writes its manifest: in a process of its own beside a real cache, or in this one."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol

import msgspec

from tdcs.api.source_uri import parse_source_uri
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Failed, Listed, Request, access_of
from tdcs.model.cache_engine import EngineError, EngineUnavailableError, Source
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.file_selection import ALL_FILES, FileSelection, selection_of
from tdcs.model.listing_limit import ListingLimit
from tdcs.trust.identity import Identify, Identity, NoIdentityError

_LONGEST_SECONDS: Final = 4 * 3600.0
_ERROR_BYTES: Final = 2000


class Lister(Protocol):
    """Lists the mounts of one cache cluster."""

    async def list(
        self, *, path: str, refresh: bool = False, resume: bool = False, limit: ListingLimit | None = None
    ) -> Listed:
        """Write the manifest of the mount's files into the folder. A caller that is cancelled ends the listing.

        Args:
            refresh: ask the source for files that were added or changed since the last listing.
            resume: with `refresh`, go on with a listing that ended early. The caller knows that nobody asks for what
                changed since that one began.
            limit: how much it may give; it ends there.

        Raises:
            LimitExceededError: There is more.
            EngineError: As `tdcs.model.cache_engine.Engine.files`.
        """
        ...


class ProcessLister:
    """Lists in a process of its own, `python -m tdcs.listing`, so that this one keeps answering.

    The process ends when this one does: it watches its standard input.

    Args:
        master: `host:port` of the cache's master.
        folder: where manifests are written.
        gate: bounds how many listings run at once; None: the caller does, as the operator with its `ListingGate`.
        patience: seconds for which the master may be away.
        limit_seconds: how long a listing may take.
        secrets: the secrets of a path's source, hidden in every error.
        identify: gives the certificate that the process shows to the master; None: its connection is plain.
        source_of: gives the source of a path that TDCS lists; None for those that the master lists.
        nodes: gives the URL of each agent by its node: they list folders, which the master does where there are none.
        expected: gives how many nodes have or shall have an agent: one that is known alone is not believed before.
        asks_sources: whether sources are listed by themselves, and the master is not asked for names.
        blocks: who gives the ids of blocks of what is listed at its store: the master, or nobody, so that they are
            TDCS's own.
        cut: how files are cut into blocks where nobody gives ids.
        reached: gives a source as it is reached, for the time of a listing; raises SourceError where it is not.
    """

    def __init__(
        self,
        *,
        master: str,
        folder: ManifestFolder,
        gate: asyncio.Semaphore | None = None,
        patience: float = 30.0,
        limit_seconds: float = _LONGEST_SECONDS,
        secrets: Callable[[str], Iterable[str]] = lambda _path: (),
        identify: Identify | None = None,
        source_of: Callable[[str], Source | None] = lambda _path: None,
        asks_sources: bool = True,
        nodes: Callable[[], Mapping[str, str]] = dict,
        expected: Callable[[], int] = int,
        blocks: Literal["Master", "Own"] = "Master",
        cut: Cut = WHOLE_BLOCKS,
        reached: Callable[[Source], AbstractAsyncContextManager[Source]] = contextlib.nullcontext,
    ) -> None:
        self._reached: Final = reached
        self._cut: Final = cut
        self._nodes: Final = nodes
        self._expected: Final = expected
        self._blocks: Final = blocks
        self._identify: Final = identify
        self._source_of: Final = source_of
        self._asks_sources: Final = asks_sources
        self._master: Final = master
        self._folder: Final = folder
        self._gate: Final = gate
        self._patience: Final = patience
        self._limit_seconds: Final = limit_seconds
        self._secrets: Final = secrets

    async def list(
        self, *, path: str, refresh: bool = False, resume: bool = False, limit: ListingLimit | None = None
    ) -> Listed:
        identity, source = None, self._source_of(path)
        if source is None and self._blocks == "Own":
            raise EngineUnavailableError(
                attempted=f"list {path}",
                reason="this process does not know yet how its source is reached",
                remedy="It is listed when a Dataset of it has been looked at",
                path=path,
                retryable=True,
            )
        selection = ALL_FILES if source is None else selection_of(source.uri, source.options)
        source = source if self._asks_sources else None
        nodes: dict[str, str] = {}
        if source is not None and parse_source_uri(source.uri).scheme == "file":
            nodes = dict(self._nodes())
            if not nodes and self._blocks == "Master":
                source = None
        if self._identify is not None and (nodes or source is None or self._blocks == "Master"):
            try:
                identity = self._identify()
            except NoIdentityError as error:
                raise _broken(path, str(error)).error(secrets=()) from error
        if refresh and not resume:
            with contextlib.suppress(OSError):
                self._folder.remove_progress(path)
        if source is not None:
            async with self._reached(source) as there:
                return await self._ask(
                    path, there, selection, nodes=nodes, identity=identity, refresh=refresh, limit=limit
                )
        return await self._ask(
            path, None, selection, nodes=nodes, identity=identity, refresh=refresh, limit=limit
        )

    async def _ask(
        self,
        path: str,
        source: Source | None,
        selection: FileSelection,
        *,
        nodes: dict[str, str],
        identity: Identity | None,
        refresh: bool,
        limit: ListingLimit | None,
    ) -> Listed:
        request = Request(
            master=self._master,
            path=path,
            folder=str(self._folder.path),
            confined=self._folder.confined,
            refresh=refresh,
            patience=self._patience,
            limit=limit,
            # Through a pipe: it is written nowhere.
            identity=identity,
            source=access_of(source) if source is not None else None,
            selection=selection,
            nodes=nodes,
            expected=self._expected() if nodes else 0,
            own_blocks=self._blocks == "Own",
            cut=self._cut,
        )
        async with self._gate or contextlib.nullcontext():
            return await self._run(request)

    async def _run(self, request: Request) -> Listed:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tdcs.listing"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise AssertionError("all three are pipes")
        errors = asyncio.create_task(_tail(stderr))
        try:
            stdin.write(msgspec.json.encode(request) + b"\n")  # stays open: its end ends the process
            async with asyncio.timeout(self._limit_seconds):
                content = await stdout.read()
                code = await process.wait()
            answer = _understood(content, request=request, code=code, errors=await errors)
        except TimeoutError:
            answer = _broken(request.path, f"it took more than {self._limit_seconds:g} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            stdin.close()
            errors.cancel()
            await asyncio.shield(process.wait())
        if isinstance(answer, Failed):
            raise answer.error(secrets=self._secrets(request.path))
        return answer


async def _tail(stream: asyncio.StreamReader) -> str:
    kept = b""
    while piece := await stream.read(_ERROR_BYTES):
        kept = (kept + piece)[-_ERROR_BYTES:]
    return kept.decode("utf-8", "replace").strip()


def _understood(content: bytes, *, request: Request, code: int, errors: str) -> Listed | Failed:
    try:
        return msgspec.msgpack.decode(content, type=Listed | Failed)
    except msgspec.MsgspecError:
        last = errors.splitlines()[-1] if errors else "no message"
        return _broken(request.path, f"the listing process ended with {code} and no answer ({last})")


def _broken(path: str, reason: str) -> Failed:
    return Failed(
        kind=EngineError.__name__,
        attempted=f"list {path}",
        reason=reason,
        remedy="It is tried again; if it was killed, give the container more memory",
        path=path,
        worker=None,
        retryable=True,
    )
