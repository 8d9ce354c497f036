"""Seeing to a mount: who mounts it, with whose keys, and when again. The mounting itself goes on in the background."""

from collections.abc import Callable
from dataclasses import dataclass

from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset import identity, sharing, source
from tdcs.controllers.dataset.background import Background
from tdcs.controllers.dataset.data import MountedData, Mounting, Refusal
from tdcs.controllers.dataset.identity import Mark
from tdcs.controllers.dataset.source import NotYetError
from tdcs.engine.protocol import Engine, EngineError, MountConflictError, Source, SourceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it stands with a mount, for one of its users.

    Attributes:
        there: whether it can be read; if not it is being made.
        trouble: what is wrong with the source, or the user's keys, of a mount that serves all the same.
        differs: which user's keys it has, when those of this one differ; else empty.
    """

    there: bool
    trouble: NotYetError | None = None
    differs: str = ""


async def see_to_mount(
    *,
    context: Context,
    engine: Engine,
    data: MountedData,
    origin: Source | None,
    me: WorkKey,
    serves: bool,
    clock: Callable[[], float],
    on_done: Callable[[], None],
) -> Outcome:
    """Begin to mount what is not mounted, or not with the keys that its user has changed.

    Args:
        context: the controller's world.
        engine: the cache.
        data: the mount.
        origin: the user's source; None when its keys cannot be read.
        me: the user.
        serves: whether it was mounted when it was last reported on.
        clock: seconds that only grow.
        on_done: called when the mounting has ended.

    Raises:
        NotYetError: it cannot be mounted for a cause that its user can mend.
        EngineError: the last mount failed.
    """
    mounts = await engine.mounts()
    if data.unmounting is not None and data.unmounting.running:
        return Outcome(there=False)  # the last user before this one has gone: it is mounted anew after that
    data.unmounting = None
    there = data.path in mounts and not (data.mounting is not None and data.mounting.anew)
    await _take(data)
    there = there or (data.path in mounts and data.mounting is None)
    if origin is None:
        if there:
            return Outcome(there=True)
        raise NotYetError(
            reason="MountLost",
            message="the cache has lost the mount, and its keys cannot be read to mount it again: see the "
            "condition SourceReachable for the remedy",
            retry_after=source.RETRY_SOON,
        )
    mark, pause = identity.mark(origin), context.settings.survey_seconds
    failure = data.failures.pop(me, None)
    if isinstance(failure, MountConflictError):
        told = sharing.conflict(
            stores=context.stores,
            cluster=data.cluster,
            path=data.path,
            source=origin,
            mounts=mounts,
            me=me,
        )
        if told is not None:
            raise NotYetError(
                reason="MountConflict", message=told, retry_after=source.RETRY_LATER
            ) from failure
    if isinstance(failure, SourceError) and there and serves:
        cause = source.as_not_yet(failure, mounted=True)
        data.refusals[me] = Refusal(mark=mark, cause=cause, again_at=clock() + pause)
    elif failure is not None:
        raise failure
    refusal = data.refusals.get(me)
    if data.source == mark or (refusal is not None and refusal.mark != mark):
        data.refusals.pop(me, None)
        refusal = None
    needed = _is_needed(data, me=me, mark=mark, there=there)
    if needed and data.mounting is None and (refusal is None or clock() >= refusal.again_at):
        work = Background(engine.mount(path=data.path, source=origin), name="mount", on_done=on_done)
        data.mounting = Mounting(by=me, mark=mark, anew=data.path not in mounts, work=work)
    differs = there and data.source not in {None, mark} and not needed
    return Outcome(
        there=there,
        trouble=refusal.cause if refusal is not None else None,
        differs=_keys_of(data) if differs else "",
    )


async def _take(data: MountedData) -> None:
    """Take in how the last mount ended; a failure is for the user that began it."""
    done = data.mounting
    if done is None or done.work.running:
        return
    data.mounting = None
    try:
        done.work.result()
    except EngineError as error:
        data.failures[done.by] = error
        return
    if done.anew:
        await data.close()  # loads of the mount that was lost
        data.forget()
    data.source, data.source_trouble, data.refresh_at = done.mark, None, float("-inf")
    data.marks[done.by] = done.mark


def _is_needed(data: MountedData, *, me: WorkKey, mark: Mark, there: bool) -> bool:
    """Whether this user's source is to be mounted: users whose Secrets differ would else mount in turns, so only a
    change counts, or that the source refuses the keys that the mount has."""
    if not there or data.source is None:
        return True
    if mark == data.source:
        data.marks[me] = mark
        return False
    return data.marks.setdefault(me, mark) != mark or data.source_trouble is not None


def _keys_of(data: MountedData) -> str:
    """The user whose keys the mount has."""
    return min(
        (str(key) for key, mark in data.marks.items() if mark == data.source), default="another Dataset"
    )
