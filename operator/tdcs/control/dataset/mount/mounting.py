"""Mounting a source: which Dataset does it, with which keys, and when again. It goes on in the background."""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.control.background_task import BackgroundTask
from tdcs.control.context import WorkKey
from tdcs.decide.cache import mount_identity
from tdcs.decide.cache.mount_identity import Mark
from tdcs.decide.cache.mount_keys import KeysAnswer, gets_keys, may_mount
from tdcs.decide.problem import RETRY_SOON, Problem, of_engine
from tdcs.decide.source_loss import SecondCount
from tdcs.listing.other_node import CountElsewhere
from tdcs.model.cache_engine import Engine, EngineError, KeysRefusedError, Source, SourceError
from tdcs.model.listing_limit import CheckSize, LimitCount, ListingLimit, SourcesSize

_audit = logging.getLogger(names.AUDIT_LOG)
"""Who had which source mounted, and when it went."""

_LOST = Problem(
    reason="MountLost",
    message="the cache has lost the mount, and its keys cannot be read to mount it again: see the condition "
    "SourceReachable for the remedy",
    retry_after=RETRY_SOON,
)

_UNCHECKED = Problem(
    reason="KeysUnchecked",
    message="the source does not say whether it takes the keys of spec.source.secretRef, and is read with others until "
    "it does: see that the operator can reach it, and that endpoint and region are right",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountUser:
    """One of the Datasets of a mount, as the mounting sees it.

    Attributes:
        uid: which Dataset of that name.
        source: its source with its keys; None when these cannot be read.
        serves: whether it was mounted when it was last reported on, and has a volume.
        claimed: whether it has a volume that leads here: it was let in with keys that the source accepted.
        outranked: whether the mount has, or had before a restart, the keys of another one.
        limit: how large its source may be.
        answer: what the source says of these keys.
        refused: that it refuses them, for people; None when it was not seen to.
    """

    key: WorkKey
    uid: str
    source: Source | None
    serves: bool
    claimed: bool
    outranked: bool
    limit: Callable[[], ListingLimit]
    answer: KeysAnswer
    refused: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOutcome:
    """How it stands with a mount, for one of its users.

    Attributes:
        is_mounted: whether it can be read; if not it is being made.
        problem: why it cannot be; None while it can or is being made.
        trouble: what is wrong with the source, or the user's keys, of a mount that serves all the same.
        differs: which user of the same namespace has its keys, when those of this one differ; else empty.
    """

    is_mounted: bool = False
    problem: Problem | None = None
    trouble: Problem | None = None
    differs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A mount under way: for which user, with what, and whether nothing was mounted there yet."""

    by: WorkKey
    uid: str
    source: Source
    again: bool
    work: BackgroundTask[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PresentKeys:
    """The keys that a user has now; None when they cannot be read. `refused`: the source refuses them."""

    mark: Mark | None
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedMount:
    """Keys that the source refused, why, and when they are worth another try."""

    mark: Mark
    cause: Problem
    again_at: float


@dataclass(eq=False, slots=True, kw_only=True)
class Mounting:
    """The mounting and unmounting of one path.

    Attributes:
        pause: seconds between two tries with the same keys.
        check_size: waits until a source can be listed, or counts it; raises LimitExceededError for too large a one.
        count_elsewhere: counts it from another node.
        observe: looks at what the cache has mounted, after a change of that.
        on_change: called when a mount or unmount has ended.
        source: the source, with the keys that this process mounted it with; None before it did.
        mark: what tells it from others.
        keyed_at: since when the mount has these keys, as far as this process knows. That it was mounted says nothing of
            them: a cache that knows the names of a source, or has the mount already, need not ask it.
        counted: how large the source was when it was counted to be mounted, from then until it is unmounted: others get
            that much less. None when it was not counted.
        times: how often this process has mounted it where nothing was mounted: its blocks have other ids since.
    """

    path: str
    engine: Engine
    pause: float
    check_size: CheckSize
    count_elsewhere: CountElsewhere
    observe: Callable[[], Awaitable[None]]
    on_change: Callable[[], None]
    clock: Callable[[], float]
    source: Source | None = field(default=None, init=False)
    mark: Mark | None = field(default=None, init=False)
    keyed_at: float = field(default=math.inf, init=False)
    counted: SourcesSize | None = field(default=None, init=False)
    times: int = field(default=0, init=False)
    _namespace: str = field(default="", init=False)
    _maker: str | None = field(default=None, init=False)
    """The uid of the Dataset for which this process has mounted it where nothing was mounted."""
    _counted_now: bool = field(default=False, init=False)
    _attempt: _Attempt | None = field(default=None, init=False)
    _unmount: BackgroundTask[None] | None = field(default=None, init=False)
    _marks: dict[WorkKey, Mark] = field(default_factory=dict, init=False)
    """The keys of each user when they were last compared with the mount's: others since are changed ones."""
    _present: dict[WorkKey, _PresentKeys] = field(default_factory=dict, init=False)
    _failures: dict[WorkKey, EngineError] = field(default_factory=dict, init=False)
    _refusals: dict[WorkKey, _FailedMount] = field(default_factory=dict, init=False)
    _suspect: bool = field(default=False, init=False)

    @property
    def busy(self) -> bool:
        """Whether something is being mounted or unmounted."""
        return any(work.running for work in self._works())

    def is_of_others(self, uid: str, *, mounts: Mapping[str, str]) -> bool:
        """Whether it is mounted for other Datasets than the one with this uid: the source has been asked about their
        keys, and not about the keys of this one.
        """
        attempt = self._attempt
        if attempt is not None and attempt.again:
            return attempt.uid != uid and attempt.work.succeeded
        return (self.source is not None or self.path in mounts) and self._maker != uid

    def suspect(self) -> None:
        """The source has refused a listing with the keys that the mount has: those of another user are worth a try."""
        self._suspect = True

    async def count(self, limit: ListingLimit) -> SourcesSize | None:
        """Count the source as it is mounted, before it is listed again: it may have grown since, or lost much. None
        when it is not counted now: the listing right after a mount goes by the count that was made for the mount.

        Raises:
            LimitExceededError: It has more than the limit.
            SourceError: It was not counted to its end in time.
        """
        counted_now, self._counted_now = self._counted_now, False
        if self.source is None or counted_now:
            return None
        return await self.check_size(self.source, limit, path=self.path, namespace=self._namespace)

    async def count_on_another_node(self, before: SourcesSize) -> SecondCount | None:
        """What another node finds of a source that has lost much; see `CountElsewhere`."""
        if self.source is None:
            return SecondCount(reason="this process does not know yet how the source is reached")
        return await self.count_elsewhere(self.source, path=self.path, before=before)

    def advance(
        self, *, user: MountUser, users: Collection[WorkKey], mounts: Mapping[str, str]
    ) -> MountOutcome:
        """Begin to mount what is not mounted, or not with the keys that its user has changed.

        Args:
            users: all Datasets of the mount.
        """
        if self._unmount is not None and self._unmount.running:
            return MountOutcome()  # the last user before this one has gone: it is mounted again after that
        self._unmount = None
        attempt = self._attempt
        self._take()
        being_made = attempt is not None and attempt is self._attempt and attempt.again
        is_mounted = self.path in mounts and not being_made
        source = user.source
        mark = mount_identity.mark(source) if source is not None else None
        self._note(user, mark, users=users)
        if source is None or mark is None:
            return MountOutcome(is_mounted=is_mounted, problem=None if is_mounted else _LOST)
        failure = self._failures.pop(user.key, None)
        if isinstance(failure, KeysRefusedError) or (
            isinstance(failure, SourceError) and is_mounted and user.serves
        ):
            cause = of_engine(failure, mounted=is_mounted)
            self._refusals[user.key] = _FailedMount(
                mark=mark, cause=cause, again_at=self.clock() + self.pause
            )
        elif failure is not None:
            return MountOutcome(problem=of_engine(failure, mounted=False))
        refusal = self._refusals.get(user.key)
        if self.mark == mark or (refusal is not None and refusal.mark != mark):
            self._refusals.pop(user.key, None)
            refusal = None
        waits = refusal is not None and self.clock() < refusal.again_at
        needed = self._is_needed(user, source, mark=mark, is_mounted=is_mounted, users=users)
        if needed and self._attempt is None and not waits:
            self._begin(user, source, again=self.path not in mounts)
        if not is_mounted:
            waiting_cause = refusal.cause if refusal is not None and waits else None
            return MountOutcome(problem=waiting_cause or (None if needed else user.refused))
        differs = self.source is not None and self.mark != mark
        settled = differs and not needed and self._attempt is None
        if not user.claimed and self.mark != mark and not (settled and user.answer is KeysAnswer.TAKEN):
            return MountOutcome(problem=user.refused)  # it was never let in: its keys may be revoked ones
        unheard = differs and not needed and user.answer is KeysAnswer.SILENT
        return MountOutcome(
            is_mounted=True,
            trouble=refusal.cause if refusal is not None else _UNCHECKED if unheard else None,
            differs=self._keys_of(user.key) if settled else "",
        )

    def unmount(
        self, *, mounts: Mapping[str, str], before: Callable[[], Awaitable[None]]
    ) -> EngineError | bool:
        """One step towards no mount: whether it is gone, or why it could not be done the last time.

        Args:
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
            self.source = self.mark = self.counted = None
            self._maker = None
            return True
        if self.path not in mounts and self._attempt is None:
            return True

        async def run() -> None:
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                await attempt.work.cancel()
            await before()
            await self.engine.unmount(path=self.path)
            _audit.info("no Dataset reads %s any more: it is unmounted", self.path)
            await self.observe()

        self._unmount = BackgroundTask(run(), name="unmount", on_done=self.on_change)
        return False

    async def close(self) -> None:
        """Stop what is under way: the next process goes on with it."""
        for work in self._works():
            await work.cancel()

    def drop_user(self, key: WorkKey, *, uid: str) -> None:
        if self._maker == uid:
            self._maker = None
        for by_user in (self._marks, self._present, self._failures, self._refusals):
            by_user.pop(key, None)

    def _works(self) -> list[BackgroundTask[None]]:
        works = (self._attempt.work if self._attempt else None, self._unmount)
        return [work for work in works if work is not None]

    def _begin(self, by: MountUser, source: Source, *, again: bool) -> None:
        async def run() -> None:
            if again:
                self.counted = None
                size = await self.check_size(source, by.limit(), path=self.path, namespace=by.key.namespace)
                # Others may have been counted meanwhile. No further one is between this look and the next line.
                LimitCount(by.limit(), subject=source.uri, path=self.path).add_size(size or SourcesSize())
                self.counted = size
            try:
                await self.engine.mount(path=self.path, source=source)
            except SourceError:
                if again:
                    # The master lists a mount while it asks the source: a look meanwhile took it for one of others.
                    await self.observe()
                raise
            _audit.info("%s mounted %s at %s", by.key, source.uri, self.path)
            if again:
                await self.observe()  # with other keys the cache says the same as before

        work = BackgroundTask(run(), name="mount", on_done=self.on_change)
        self._attempt = _Attempt(by=by.key, uid=by.uid, source=source, again=again, work=work)

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
            if done.again:
                self.counted = None
            return
        self.source, self.mark, self._suspect = done.source, mount_identity.mark(done.source), False
        self.keyed_at = self.clock()
        self._namespace, self._counted_now = done.by.namespace, done.again
        self._maker = done.uid if done.again else self._maker
        self.times += done.again
        self._marks[done.by] = self.mark

    def _is_needed(
        self, user: MountUser, source: Source, *, mark: Mark, is_mounted: bool, users: Collection[WorkKey]
    ) -> bool:
        """Whether this user's source is to be mounted: users with different Secrets would else mount in turns, so only
        a change counts, or that the source refuses the keys that the mount has, or nobody has them any more."""
        if not is_mounted:
            return may_mount(user.answer, shared=len(users) > 1)
        if mark == self.mark:
            self._marks[user.key] = mark
            return False
        has_source = self.source is not None
        if not has_source and user.outranked:
            return False
        return gets_keys(
            user.answer,
            alone=all(key.namespace == user.key.namespace for key in users),
            keys_known=has_source,
            changed=self._marks.setdefault(user.key, mark) != mark if has_source else True,
            held=not self._suspect and bool(self._holders(users)),
            held_by_others=any(key.namespace != user.key.namespace for key in self._holders(users)),
            founded=self.path == mount_identity.engine_path(source=source),
        )

    def _note(self, user: MountUser, mark: Mark | None, *, users: Collection[WorkKey]) -> None:
        """Take in which keys a user has now. When nobody has the mount's any more, those of others are worth a try."""
        held = bool(self._holders(users))
        self._present[user.key] = _PresentKeys(mark=mark, refused=user.answer is KeysAnswer.REFUSED)
        if held and not self._holders(users) and len(users) > 1:
            self.on_change()

    def _holders(self, users: Collection[WorkKey]) -> list[WorkKey]:
        """The users that have the mount's keys, unless the source was seen to refuse them."""
        present = ((key, self._present.get(key)) for key in users)
        return [
            key for key, keys in present if keys is not None and keys.mark == self.mark and not keys.refused
        ]

    def _keys_of(self, user: WorkKey) -> str:
        """A user with the mount's keys in the namespace of this one; empty when there is none."""
        key_holders = (
            str(key)
            for key, keys in self._present.items()
            if key.namespace == user.namespace and keys.mark == self.mark
        )
        return min(key_holders, default="")
