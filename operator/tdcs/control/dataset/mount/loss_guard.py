"""Keeps the last version of a source while the source has lost more than is believed at once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.api.conditions import SOURCE_SHRUNK
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.decide.problem import Problem
from tdcs.decide.source_loss import (
    LossRule,
    SecondCount,
    SourceLoss,
    has_lost,
    loss_of,
    loss_text,
    next_look,
)
from tdcs.model.listing_limit import SourcesSize


class SourceLossError(Exception):
    """A source has lost more than is believed: no version is made of it, and nothing else learns of it."""


def loss_rule(*, users: Sequence[Reader], confirm_seconds: float) -> LossRule:
    """The rule of a mount: the least that any of its Datasets allows, and what any of them says is right."""
    accepted = (
        (user.obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_ACCEPT_LOSS) for user in users
    )
    return LossRule(
        percent=min((user.dataset.spec.source.loss_percent for user in users), default=0),
        confirm_seconds=confirm_seconds,
        accepted=frozenset(text for value in accepted if value and (text := str(value).strip())),
    )


@dataclass(eq=False, slots=True, kw_only=True)
class LossGuard:
    """That of one mount. It outlives the mount's being made again: what the source had is known from before.

    Attributes:
        loss: what the source has lost, as it was last found; None when it is believed.
    """

    clock: Callable[[], float]
    loss: SourceLoss | None = field(default=None, init=False)
    _rule: LossRule = field(default_factory=LossRule, init=False)
    _checked_by: LossRule = field(default_factory=LossRule, init=False)
    """The rule of the last comparison: another one may come while a listing goes on."""
    _version: str = field(default="", init=False)
    _size: SourcesSize = field(default_factory=SourcesSize, init=False)

    def accept(self, *, version: str, size: SourcesSize) -> None:
        """A version was taken."""
        self._version, self._size, self.loss = version, size, None

    def allow(self, rule: LossRule) -> bool:
        """Go by this rule from now on; whether what was found before may be believed by it."""
        changed, self._rule = rule != self._rule, rule
        return changed and self.loss is not None

    async def check(
        self, size: SourcesSize, *, elsewhere: Callable[[SourcesSize], Awaitable[SecondCount | None]]
    ) -> None:
        """Compare a source with its last version.

        Args:
            elsewhere: counts it from another node, as far as the size that is given. Asked only when it has lost too
                much.

        Raises:
            SourceLossError: It has lost too much.
        """
        self._checked_by = rule = self._rule
        if not self._version or self._version in rule.accepted:
            return
        if not has_lost(before=self._size, now=size, percent=rule.percent):
            return
        second = await elsewhere(self._size)
        self._checked_by = self._rule  # another one may have come meanwhile
        loss = loss_of(
            version=self._version,
            before=self._size,
            now=size,
            rule=self._rule,
            clock=self.clock(),
            last=self.loss,
            second=second,
        )
        if loss is not None:
            self.loss = loss
            raise SourceLossError

    def pause(self, least: float) -> float:
        """Seconds until a source that has lost something is looked at again, `least` where it has not."""
        if self.loss is None:
            return least
        return next_look(
            self.loss, rule=self._rule, compared_by=self._checked_by, least=least, clock=self.clock()
        )

    def problem(self, *, retry_after: float) -> Problem:
        """What is said of it."""
        if self.loss is None:
            raise AssertionError("nothing was lost")
        text = loss_text(self.loss, rule=self._rule, annotation=names.ANNOTATION_ACCEPT_LOSS)
        return Problem(reason=SOURCE_SHRUNK, message=text, retry_after=retry_after, mounted=True)
