"""Mounting a source: which Dataset does it, with which keys, and when again. It goes on in the background."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tdcs.controllers.background_task import BackgroundTask
from tdcs.controllers.context import WorkKey
from tdcs.controllers.mounts import identity, problem
from tdcs.controllers.mounts.identity import Mark
from tdcs.controllers.mounts.problem import Problem
from tdcs.engine.protocol import Engine, EngineError, MountConflictError, Source, SourceError
from tdcs.listing.limit import CheckSize, ListingLimit

_audit = logging.getLogger("tdcs.audit")
"""Who had which source mounted, and when it went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountUser:
    """One of the Datasets of a mount, as the mounting sees it.

    Attributes:
        key: the Dataset.
        source: its source with its keys; None when these cannot be read.
        serves: whether it was mounted when it was last reported on, and has a volume.
        claimed: whether it has a volume that leads here: it was let in with keys that the source accepted.
        outranked: whether the mount has, or had before a restart, the keys of another one.
        conflict: says why its source cannot be mounted beside what is mounted; None when it can.
        limit: how large its source may be.
    """

    key: WorkKey
    source: Source | None
    serves: bool
    claimed: bool
    outranked: bool
    conflict: Callable[[], str | None]
    limit: ListingLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOutcome:
    """How it stands with a mount, for one of its users.

    Attributes:
        there: whether it can be read; if not it is being made.
        problem: why it cannot be; None while it can or is being made.
        trouble: what is wrong with the source, or the user's keys, of a mount that serves all the same.
        differs: which user's keys it has, when those of this one differ; else empty.
    """

    there: bool = False
    problem: Problem | None = None
    trouble: Problem | None = None
    differs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A mount under way: for which user, with what, and whether nothing was mounted there yet."""

    by: WorkKey
    source: Source
    anew: bool
    work: BackgroundTask[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """Keys that the source refused, why, and when they are worth another try."""

    mark: Mark
    cause: Problem
    again_at: float


class Mounting:
    """The mounting and unmounting of one path.

    Args:
        path: engine path.
        engine: the cache.
        pause: seconds between two tries with the same keys.
        check_size: counts a source before it is mounted; raises LimitExceededError for one that is too large.
        looked: looks at what the cache has mounted, after a change of that.
        on_change: called when a mount or unmount has ended.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        *,
        path: str,
        engine: Engine,
        pause: float,
        check_size: CheckSize,
        looked: Callable[[], Awaitable[None]],
        on_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._path = path
        self._engine = engine
        self._pause = pause
        self._check_size = check_size
        self._looked = looked
        self._on_change = on_change
        self._clock = clock
        self._source: Source | None = None
        self._mark: Mark | None = None
        self._attempt: _Attempt | None = None
        self._unmount: BackgroundTask[None] | None = None
        self._marks: dict[WorkKey, Mark] = {}
        self._failures: dict[WorkKey, EngineError] = {}
        self._refusals: dict[WorkKey, _Refusal] = {}
        self._suspect = False
        self._times = 0

    @property
    def times(self) -> int:
        """How often this process has mounted it where nothing was mounted: its blocks have other ids since."""
        return self._times

    @property
    def source(self) -> Source | None:
        """The source, with the keys that this process mounted it with; None before it did."""
        return self._source

    @property
    def mark(self) -> Mark | None:
        """What tells it from others."""
        return self._mark

    @property
    def busy(self) -> bool:
        """Whether something is being mounted or unmounted."""
        return any(
            work is not None and work.running
            for work in (self._attempt.work if self._attempt else None, self._unmount)
        )

    def suspect(self) -> None:
        """The source has refused a listing with the keys that the mount has: those of another user are worth a try."""
        self._suspect = True

    def advance(self, *, user: MountUser, mounts: Mapping[str, str]) -> MountOutcome:
        """Begin to mount what is not mounted, or not with the keys that its user has changed.

        Args:
            user: the Dataset of this pass.
            mounts: what the cache has mounted.
        """
        if self._unmount is not None and self._unmount.running:
            return MountOutcome()  # the last user before this one has gone: it is mounted anew after that
        self._unmount = None
        attempt = self._attempt
        self._take()
        there = self._path in mounts and not (
            attempt is not None and attempt is self._attempt and attempt.anew
        )
        source = user.source
        if source is None:
            if there:
                return MountOutcome(there=True)
            text = (
                "the cache has lost the mount, and its keys cannot be read to mount it again: see the condition "
                "SourceReachable for the remedy"
            )
            return MountOutcome(
                problem=Problem(reason="MountLost", message=text, retry_after=problem.RETRY_SOON)
            )
        mark = identity.mark(source)
        failure = self._failures.pop(user.key, None)
        conflict = user.conflict() if isinstance(failure, MountConflictError) else None
        if conflict is not None:
            return MountOutcome(problem=Problem(reason="MountConflict", message=conflict))
        if isinstance(failure, SourceError) and there and user.serves:
            cause = problem.of_engine(failure, mounted=True)
            self._refusals[user.key] = _Refusal(mark=mark, cause=cause, again_at=self._clock() + self._pause)
        elif failure is not None:
            return MountOutcome(problem=problem.of_engine(failure, mounted=False))
        refusal = self._refusals.get(user.key)
        if self.mark == mark or (refusal is not None and refusal.mark != mark):
            self._refusals.pop(user.key, None)
            refusal = None
        needed = self._is_needed(user, mark=mark, there=there)
        if needed and self._attempt is None and (refusal is None or self._clock() >= refusal.again_at):
            self._begin(user, source, anew=self._path not in mounts)
        if there and not user.claimed and self.mark != mark:
            return self._barred(user, busy=needed or self._attempt is not None)
        differs = there and self._source is not None and self.mark != mark and not needed
        return MountOutcome(
            there=there,
            trouble=refusal.cause if refusal is not None else None,
            differs=self._keys_of(user.key) if differs else "",
        )

    def _barred(self, user: MountUser, *, busy: bool) -> MountOutcome:
        """For a user that was never let in and has other keys than the mount: they may be revoked ones."""
        if busy or self._source is None:
            return MountOutcome()
        text = (
            "the source is mounted with other keys than those of spec.source.secretRef, which have been changed since: "
            "put the present keys into the Secret, or put this Dataset into another CacheCluster "
            "(spec.cacheClusterRef)"
        )
        return MountOutcome(
            problem=Problem(reason="KeysDiffer", message=text, retry_after=problem.RETRY_LATER)
        )

    def unmount(
        self, *, mounts: Mapping[str, str], before: Callable[[], Awaitable[None]]
    ) -> EngineError | bool:
        """One step towards no mount: whether it is gone, or why it could not be done the last time.

        Args:
            mounts: what the cache has mounted.
            before: what is to be done before, in the background.
        """
        work = self._unmount
        if work is not None and work.running:
            return False
        if work is not None:
            self._unmount = None
            try:
                work.result()
            except EngineError as error:
                return error
            self._source = self._mark = None
            return True
        if self._path not in mounts and self._attempt is None:
            return True

        async def run() -> None:
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                await attempt.work.cancel()
            await before()
            await self._engine.unmount(path=self._path)
            _audit.info("no Dataset reads %s any more: it is unmounted", self._path)
            await self._looked()

        self._unmount = BackgroundTask(run(), name="unmount", on_done=self._on_change)
        return False

    async def close(self) -> None:
        """Stop what is under way: the next process goes on with it."""
        for work in (self._attempt.work if self._attempt else None, self._unmount):
            if work is not None:
                await work.cancel()

    def forget_user(self, key: WorkKey) -> None:
        """A Dataset does not read it any more."""
        for each in (self._marks, self._failures, self._refusals):
            each.pop(key, None)

    def _begin(self, by: MountUser, source: Source, *, anew: bool) -> None:
        async def run() -> None:
            if anew:
                await self._check_size(source, by.limit, path=self._path)
            await self._engine.mount(path=self._path, source=source)
            _audit.info("%s mounted %s at %s", by.key, source.uri, self._path)
            await self._looked()

        work = BackgroundTask(run(), name="mount", on_done=self._on_change)
        self._attempt = _Attempt(by=by.key, source=source, anew=anew, work=work)

    def _take(self) -> None:
        """Take in how the last attempt ended; a failure is for the user that began it."""
        done = self._attempt
        if done is None or done.work.running:
            return
        self._attempt = None
        try:
            done.work.result()
        except EngineError as error:
            self._failures[done.by] = error
            return
        self._source, self._mark, self._suspect = done.source, identity.mark(done.source), False
        self._times += done.anew
        self._marks[done.by] = self._mark

    def _is_needed(self, user: MountUser, *, mark: Mark, there: bool) -> bool:
        """Whether this user's source is to be mounted: users with different Secrets would else mount in turns, so only
        a change counts, or that the source refuses the keys that the mount has."""
        if not there:
            return True
        if self._source is None:
            return not user.outranked
        if mark == self.mark:
            self._marks[user.key] = mark
            return False
        return self._marks.setdefault(user.key, mark) != mark or self._suspect

    def _keys_of(self, user: WorkKey) -> str:
        """The user that gave the mount its keys, if it is of the same namespace as this one."""
        own = (key for key in self._marks if key.namespace == user.namespace)
        return min((str(key) for key in own if self._marks[key] == self.mark), default="another Dataset")
