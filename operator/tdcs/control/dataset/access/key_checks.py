"""Asks the sources of mounted Datasets now and then whether they still take each Dataset's own keys.

Listings do not say it: a source may be listed seldom or never, and a mount that several Datasets read has the keys of
one of them.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tdcs.control.background_task import BackgroundTask
from tdcs.control.context import WorkKey
from tdcs.decide.cache import mount_identity
from tdcs.decide.cache.mount_identity import Mark
from tdcs.decide.cache.mount_keys import KeysAnswer
from tdcs.decide.problem import RETRY_LATER, RETRY_SOON, Problem, Refusal, of_engine, refusal_of
from tdcs.listing.source_keys import CheckKeys
from tdcs.model.cache_engine import EngineError, KeysRefusedError, Source

PATIENCE: Final = 3.0
"""Seconds that a Dataset waits for an answer before it says so: stores that are at hand answer sooner."""

_UNANSWERED: Final = Refusal(
    reason="KeysUnchecked",
    message="the source is mounted for others, and does not say whether it takes the keys of spec.source.secretRef: "
    "see that the operator can reach it, and that endpoint and region are right. Some stores of a namespace are asked "
    "at a time: slow ones keep its others waiting",
    retry_after=RETRY_LATER,
)


@dataclass(slots=True, kw_only=True)
class _Check:
    """How it stands with the keys of one Dataset.

    Attributes:
        due_at: when they are asked about next.
        work: the question under way.
        trouble: that they were refused, the last time that the source said anything of them, or of those before.
        answer: what it said of these.
        awaited: whether more waits for the answer than a report: no word is asked for again soon.
    """

    mark: Mark
    due_at: float
    began_at: float = -math.inf
    work: BackgroundTask[bool] | None = None
    trouble: Problem | None = None
    answer: KeysAnswer = KeysAnswer.AWAITED
    awaited: bool = False


class KeyChecks:
    """Remembers the answers.

    Args:
        seconds: how often a source is asked. The first time comes within that, another one for each Dataset.
        on_done: called with a Dataset about which a source has answered.
    """

    def __init__(
        self, *, seconds: float, clock: Callable[[], float], on_done: Callable[[WorkKey], None]
    ) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._on_done: Final = on_done
        self._checks: Final[dict[WorkKey, _Check]] = {}

    def look(
        self,
        key: WorkKey,
        source: Source | None,
        *,
        check_keys: CheckKeys,
        awaited: bool = False,
        soon: bool = False,
        doubted: bool = False,
    ) -> Problem | None:
        """Why the source does not take a Dataset's keys, as far as it is known; asks when it is time.

        Args:
            key: the Dataset.
            source: with its own keys; None while these are not known, or may not be used.
            awaited: whether the answer decides on more than a report: a source that was not asked is asked at once.
            soon: ask the first time at once: the keys were refused when they were asked about last.
            doubted: nodes are given nothing by the source, which may be for the keys: ask again before it is time.
        """
        if source is None or source.credentials is None:
            return None
        mark, now = mount_identity.mark(source), self._clock()
        check = self._checks.get(key)
        if check is not None and check.work is not None and not check.work.running:
            self._take(check)
        if check is None:
            spread = 0.0 if soon else zlib.crc32(str(key).encode()) / (1 << 32)
            check = self._checks[key] = _Check(mark=mark, due_at=now + self._seconds * spread)
        elif check.mark != mark and check.work is None:
            # What was refused stays so until the source has taken other keys: else a change would begin it again.
            check.mark, check.answer, check.due_at = mark, KeysAnswer.AWAITED, now
        if awaited and not check.awaited:
            check.due_at = now
        if doubted:
            check.due_at = min(check.due_at, check.began_at + RETRY_LATER)
        check.awaited = awaited
        if check.work is None and now >= check.due_at:
            self._begin(key, check, source, check_keys)
        return check.trouble

    def join_doubt(self, key: WorkKey, source: Source, *, check_keys: CheckKeys) -> Refusal | None:
        """Why a Dataset may not join a mount that was made for others; None when it may. Asks the source at once: that
        the mount has the same keys says nothing, for they may have been revoked since."""
        refused = self.look(key, source, check_keys=check_keys, awaited=True)
        if self.are_taken(key, source):
            return None
        return _UNANSWERED if refused is None else refusal_of(refused, permanent=False)

    def are_taken(self, key: WorkKey, source: Source) -> bool:
        """Whether the source has taken these keys of a Dataset, the last time that it said anything of them."""
        return self.answer(key, source) is KeysAnswer.TAKEN

    def answer(self, key: WorkKey, source: Source | None) -> KeysAnswer:
        """What the source says of these keys of a Dataset. One that needs no keys takes none, which is an answer."""
        if source is not None and source.credentials is None:
            return KeysAnswer.TAKEN
        check = self._checks.get(key)
        if check is None or source is None or check.mark != mount_identity.mark(source):
            return KeysAnswer.AWAITED
        return check.answer

    def is_asking(self, key: WorkKey) -> bool:
        check = self._checks.get(key)
        return check is not None and check.work is not None

    def patience_left(self, key: WorkKey) -> float:
        """Seconds for which nothing is said of a Dataset yet, because a source has just been asked about it; else 0."""
        check = self._checks.get(key)
        if check is None or check.work is None:
            return 0.0
        return max(check.began_at + PATIENCE - self._clock(), 0.0)

    def seconds_left(self, key: WorkKey) -> float | None:
        """Until the source is to be asked about a Dataset; None when it is not, or is being asked."""
        check = self._checks.get(key)
        if check is None or check.work is not None:
            return None
        return max(check.due_at - self._clock(), 0.0)

    def drop(self, key: WorkKey) -> None:
        self._checks.pop(key, None)

    async def close(self) -> None:
        for check in list(self._checks.values()):
            if check.work is not None:
                await check.work.cancel()

    def _begin(self, key: WorkKey, check: _Check, source: Source, check_keys: CheckKeys) -> None:
        async def ask() -> bool:
            return await check_keys(source, namespace=key.namespace)

        check.began_at = self._clock()
        check.work = BackgroundTask(ask(), name=f"keys of {key}", on_done=lambda: self._on_done(key))

    def _take(self, check: _Check) -> None:
        work, check.work = check.work, None
        assert work is not None
        accepted = False
        try:
            accepted = work.result()
        except KeysRefusedError as error:
            # The Secret is read again soon: keys that are put right are asked about at once.
            check.trouble = replace(of_engine(error, mounted=True), retry_after=RETRY_SOON)
            check.answer = KeysAnswer.REFUSED
        except EngineError:
            pass
        if accepted:
            check.trouble, check.answer = None, KeysAnswer.TAKEN
        elif check.answer is KeysAnswer.AWAITED:
            check.answer = KeysAnswer.SILENT
        again_soon = check.trouble is not None or (check.awaited and check.answer is not KeysAnswer.TAKEN)
        pause = min(self._seconds, RETRY_LATER) if again_soon else self._seconds
        check.due_at = self._clock() + pause
