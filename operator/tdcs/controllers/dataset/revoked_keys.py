"""Since when Datasets have no keys that their sources take: after a while what is cached is withdrawn from them."""

from collections.abc import Callable
from typing import Final

from tdcs.controllers.context import WorkKey
from tdcs.controllers.problem import RETRY_SOON, Problem


class RevokedKeys:
    """Remembers refusals, which a single answer of a store does not make final. A Secret that is gone, or that the
    operator may not read any more, counts as one: else who has revoked keys would delete it.

    Args:
        seconds: after so long without an answer in between that took the keys they count as revoked.
        clock: seconds that only grow.
    """

    def __init__(self, *, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._since: Final[dict[WorkKey, float]] = {}

    def note(self, key: WorkKey, *, refused: bool | None) -> float | None:
        """Take in how the source answers to a Dataset's keys, None: not at all yet; gives the seconds until they count
        as revoked."""
        if refused is False or (refused is None and key not in self._since):
            self._since.pop(key, None)
            return None
        return max(self._since.setdefault(key, self._clock()) + self._seconds - self._clock(), 0.0)

    def are_revoked(self, key: WorkKey) -> bool:
        """Whether a Dataset's keys have been refused for so long."""
        return key in self._since and self._clock() - self._since[key] >= self._seconds

    def forget(self, key: WorkKey) -> None:
        """Begin anew: the Dataset is gone, or what was cached for it is."""
        self._since.pop(key, None)

    def problem(self, uri: str) -> Problem:
        """Why a Dataset is withdrawn."""
        text = (
            f"spec.source.secretRef has given no keys for {_spoken(self._seconds)} that {uri} takes, so that nothing "
            "of it is cached for this Dataset any more: put keys into the Secret that the source takes"
        )
        return Problem(reason="KeysRevoked", message=text, retry_after=RETRY_SOON)


def _spoken(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"
