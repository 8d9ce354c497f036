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
        known = self._checks.get(key)
        if known is not None and known.work is not None and not known.work.running:
            self._take(known)
        if known is None:
            spread = 0.0 if soon else zlib.crc32(str(key).encode()) / (1 << 32)
            known = self._checks[key] = _Check(mark=mark, due_at=now + self._seconds * spread)
        elif known.mark != mark and known.work is None:
            # What was refused stays so until the source has taken other keys: else a change would begin it again.
            known.mark, known.answer, known.due_at = mark, KeysAnswer.AWAITED, now
        if awaited and not known.awaited:
            known.due_at = now
        if doubted:
            known.due_at = min(known.due_at, known.began_at + RETRY_LATER)
        known.awaited = awaited
        if known.work is None and now >= known.due_at:
            self._begin(key, known, source, check_keys)
        return known.trouble

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
        known = self._checks.get(key)
        if known is None or source is None or known.mark != mount_identity.mark(source):
            return KeysAnswer.AWAITED
        return known.answer

    def is_asking(self, key: WorkKey) -> bool:
        known = self._checks.get(key)
        return known is not None and known.work is not None

    def patience_left(self, key: WorkKey) -> float:
        """Seconds for which nothing is said of a Dataset yet, because a source has just been asked about it; else 0."""
        known = self._checks.get(key)
        if known is None or known.work is None:
            return 0.0
        return max(known.began_at + PATIENCE - self._clock(), 0.0)

    def seconds_left(self, key: WorkKey) -> float | None:
        """Until the source is to be asked about a Dataset; None when it is not, or is being asked."""
        known = self._checks.get(key)
        if known is None or known.work is not None:
            return None
        return max(known.due_at - self._clock(), 0.0)

    def drop(self, key: WorkKey) -> None:
        self._checks.pop(key, None)

    async def close(self) -> None:
        for known in list(self._checks.values()):
            if known.work is not None:
                await known.work.cancel()

    def _begin(self, key: WorkKey, known: _Check, source: Source, check_keys: CheckKeys) -> None:
        async def ask() -> bool:
            return await check_keys(source, namespace=key.namespace)

        known.began_at = self._clock()
        known.work = BackgroundTask(ask(), name=f"keys of {key}", on_done=lambda: self._on_done(key))

    def _take(self, known: _Check) -> None:
        work, known.work = known.work, None
        assert work is not None
        taken = False
        try:
            taken = work.result()
        except KeysRefusedError as error:
            # The Secret is read again soon: keys that are put right are asked about at once.
            known.trouble = replace(of_engine(error, mounted=True), retry_after=RETRY_SOON)
            known.answer = KeysAnswer.REFUSED
        except EngineError:
            pass
        if taken:
            known.trouble, known.answer = None, KeysAnswer.TAKEN
        elif known.answer is KeysAnswer.AWAITED:
            known.answer = KeysAnswer.SILENT
        again_soon = known.trouble is not None or (known.awaited and known.answer is not KeysAnswer.TAKEN)
        pause = min(self._seconds, RETRY_LATER) if again_soon else self._seconds
        known.due_at = self._clock() + pause
