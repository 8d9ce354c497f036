"""Lists a mount and writes its manifest: in a process of its own for a real cache, or in this one."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from tdcs.api.source_uri import parse_source_uri
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import FRAME_HEAD, Early, Failed, Listed, Request, access_of
from tdcs.model.cache_engine import EngineError, EngineUnavailableError, Source
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.listing_limit import ListingLimit
from tdcs.trust.identity import Identify, NoIdentityError

_LONGEST_SECONDS: Final = 4 * 3600.0
_ERROR_BYTES: Final = 2000


class Lister(Protocol):
    """Lists the mounts of one cache cluster."""

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        early: Callable[[Listed], None] | None = None,
    ) -> Listed:
        """Write the manifest of the mount's files into the folder. A caller that is cancelled ends the listing.

        Args:
            refresh: ask the source again for what an earlier listing that ended early has of it.
            resume: with `refresh`, go on with that all the same. The caller knows that nobody asks for what
                changed since that one began.
            limit: how much it may give; it ends there.
            early: called now and then with what a long listing has so far: files that the source has, and not all of
                them.

        Raises:
            LimitExceededError: There is more.
            EngineError: As `tdcs.listing.one_listing.list_source`.
        """
        ...


class ProcessLister:
    """Lists in a process of its own, `python -m tdcs.listing`, so that this one keeps answering.

    The process ends when this one does: it watches its standard input.

    How many run at once the caller bounds, as the operator does with its `ListingGate`.

    Args:
        folder: where manifests are written.
        source_of: gives the source of a path; None of one that is not known yet.
        limit_seconds: how long a listing may take.
        secrets: the secrets of a path's source, hidden in every error.
        identify: gives the certificate that the process shows to agents; None: its connections are plain.
        nodes: gives the URL of each agent by its node: they list folders.
        expected: gives how many nodes have or shall have an agent: one that is known alone is not believed before.
        cut: how files are cut into blocks.
        reached: gives a source as it is reached, for the time of a listing; raises SourceError where it is not.
    """

    def __init__(
        self,
        *,
        folder: ManifestFolder,
        source_of: Callable[[str], Source | None],
        limit_seconds: float = _LONGEST_SECONDS,
        secrets: Callable[[str], Iterable[str]] = lambda _path: (),
        identify: Identify | None = None,
        nodes: Callable[[], Mapping[str, str]] = dict,
        expected: Callable[[], int] = int,
        cut: Cut = WHOLE_BLOCKS,
        reached: Callable[[Source], AbstractAsyncContextManager[Source]] = contextlib.nullcontext,
    ) -> None:
        self._reached: Final = reached
        self._cut: Final = cut
        self._nodes: Final = nodes
        self._expected: Final = expected
        self._identify: Final = identify
        self._source_of: Final = source_of
        self._folder: Final = folder
        self._limit_seconds: Final = limit_seconds
        self._secrets: Final = secrets

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        early: Callable[[Listed], None] | None = None,
    ) -> Listed:
        identity, source = None, self._source_of(path)
        if source is None:
            raise EngineUnavailableError(
                attempted=f"list {path}",
                reason="this process does not know yet how its source is reached",
                remedy="It is listed when a Dataset of it has been looked at",
                path=path,
                retryable=True,
            )
        is_a_folder = parse_source_uri(source.uri).scheme == "file"
        nodes = dict(self._nodes()) if is_a_folder else {}
        if self._identify is not None and nodes:
            try:
                identity = self._identify()
            except NoIdentityError as error:
                raise _broken(path, str(error)).error(secrets=()) from error
        if refresh and not resume:
            with contextlib.suppress(OSError):
                self._folder.remove_progress(path)
        async with self._reached(source) as reached_source:
            return await self._run(
                Request(
                    path=path,
                    folder=str(self._folder.path),
                    confined=self._folder.confined,
                    limit=limit,
                    # Through a pipe: it is written nowhere.
                    identity=identity,
                    source=access_of(reached_source),
                    nodes=nodes,
                    expected=self._expected() if nodes else 0,
                    cut=self._cut,
                    early=early is not None,
                ),
                early=early,
            )

    async def _run(self, request: Request, *, early: Callable[[Listed], None] | None) -> Listed:
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
                message = await _answer(stdout, early=early)
                code = await process.wait()
            answer = message or _no_answer(request, code=code, errors=await errors)
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
    tail = b""
    while piece := await stream.read(_ERROR_BYTES):
        tail = (tail + piece)[-_ERROR_BYTES:]
    return tail.decode("utf-8", "replace").strip()


async def _answer(
    stream: asyncio.StreamReader, *, early: Callable[[Listed], None] | None
) -> Listed | Failed | None:
    """The answer of a listing process, after what it gives before; None when it ends without one."""
    try:
        while True:
            length = int.from_bytes(await stream.readexactly(FRAME_HEAD), "big")
            content = await stream.readexactly(length)
            message: Early | Listed | Failed = msgspec.msgpack.decode(content, type=Early | Listed | Failed)
            if not isinstance(message, Early):
                return message
            if early is not None:
                early(message.listed)
    except (asyncio.IncompleteReadError, msgspec.MsgspecError):
        await stream.read()  # until it ends
        return None


def _no_answer(request: Request, *, code: int, errors: str) -> Failed:
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
