"""Since when Datasets have no keys that their sources take: after a while what is cached is withdrawn from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tdcs.api.durations import past, seconds_between
from tdcs.control.context import WorkKey
from tdcs.decide.problem import RETRY_SOON, Refusal


@dataclass(slots=True, kw_only=True)
class _RefusedKeys:
    """Keys that are refused.

    Attributes:
        since: the time of the first refusal (RFC 3339), which the status remembers.
        over_at: when the keys count as revoked, by this process's clock.
        confirmed: whether this process has seen a refusal, too.
    """

    since: str
    over_at: float
    confirmed: bool


class RevokedKeys:
    """Remembers refusals, which a single answer of a store does not make final. A Secret that is gone, or that the
    operator may not read any more, counts as one: else who has revoked keys would delete it.

    The time of the first one is in the Dataset's status, so that it goes on through restarts of the operator. It can
    only shorten access: the keys are kept when the source takes them, whatever the status says.

    Args:
        seconds: after so long without an answer in between that took the keys they count as revoked.
        grace: a refusal that only the status knows of counts no sooner than after so long, in which this process asks
            the source: the keys may have been put right meanwhile.
        now: the time of day, RFC 3339.
    """

    def __init__(
        self, *, seconds: float, grace: float, clock: Callable[[], float], now: Callable[[], str]
    ) -> None:
        self._seconds: Final = seconds
        self._grace: Final = grace
        self._clock: Final = clock
        self._now: Final = now
        self._refusals: Final[dict[WorkKey, _RefusedKeys | None]] = {}
        """None: not refused, as this process knows. Of others the status says it."""

    def note(self, key: WorkKey, *, refused: bool | None, written: str | None) -> float | None:
        """Take in how the source answers to a Dataset's keys; gives the seconds until they count as revoked.

        Args:
            key: the Dataset.
            refused: whether it refuses them; None: it has not said so yet.
            written: since when it does, by the status.
        """
        refusal = self._refusals.get(key)
        if refused is False:
            self._refusals[key] = None
            return None
        if refusal is None:
            if not refused and (written is None or key in self._refusals):
                return None
            refusal = self._refusals[key] = self._first(None if key in self._refusals else written)
        if refused and not refusal.confirmed:
            refusal.confirmed, refusal.over_at = True, self._over_at(refusal.since)
        return max(refusal.over_at - self._clock(), 0.0)

    def unanswered(self, key: WorkKey) -> None:
        """The source could not be asked, for a reason that is in the cache: what is known stands, and a refusal that
        only the status knows of waits for an answer."""
        refusal = self._refusals.get(key)
        if refusal is not None and not refusal.confirmed:
            refusal.over_at = max(refusal.over_at, self._clock() + self._grace)

    def since(self, key: WorkKey, *, written: str | None) -> str | None:
        """Since when a Dataset's keys are refused, for its status, which says `written` now."""
        refusal = self._refusals.get(key)
        if refusal is not None:
            return refusal.since
        return None if key in self._refusals else written

    def are_revoked(self, key: WorkKey) -> bool:
        """Whether a Dataset's keys have been refused for so long."""
        refusal = self._refusals.get(key)
        return refusal is not None and self._clock() >= refusal.over_at

    def begin(self, key: WorkKey) -> None:
        """Nothing is cached for the Dataset, and its keys are tried for the first time, or again."""
        self._refusals[key] = None

    def drop(self, key: WorkKey) -> None:
        self._refusals.pop(key, None)

    def refusal(self, uri: str) -> Refusal:
        text = (
            f"spec.source.secretRef, or serviceAccountName, has given no keys for {_spoken(self._seconds)} that {uri} "
            "takes, so that no new pod reads it through the cache: put keys into the Secret that the source takes, or "
            "give the account its role again"
        )
        return Refusal(reason="KeysRevoked", message=text, retry_after=RETRY_SOON, permanent=True)

    def _first(self, written: str | None) -> _RefusedKeys:
        now = self._now()
        since = now if written is None else past(written, now=now)
        over_at = max(self._over_at(since), self._clock() + self._grace)
        return _RefusedKeys(since=since, over_at=over_at, confirmed=False)

    def _over_at(self, since: str) -> float:
        """By the time of day once, for that may jump; afterwards by the clock."""
        elapsed = max(seconds_between(since, self._now()), 0.0)
        return self._clock() + self._seconds - elapsed


def _spoken(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"
