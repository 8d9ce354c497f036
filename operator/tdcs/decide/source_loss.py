"""Is a source believed that has far less than its last version?

A folder that is not mounted where it is listed, a mirror that is being replaced and a store that lost a part of its
index look like a source whose files were deleted. What they lost would leave the cache, and come again from the source
an hour later. So a version that lacks more than a set share of the files, or of the bytes, of the last one is taken
only when it was found again and again for a while, from another node than the operator's as well, or when somebody says
that it is right.

As many files with fewer bytes are no loss: they were replaced, and what the cache has of the old ones is of no use.
"""

from dataclasses import dataclass, replace
from typing import Final

from tdcs.model.humanize import counted, duration, human
from tdcs.model.listing_limit import SourcesSize
from tdcs.model.printable_text import printable

LOSS_PERCENT: Final = 90
"""What a version may lack where a Dataset says nothing else: whoever replaces most of a Dataset waits for nothing."""

CONFIRM_SECONDS: Final = 3600.0
"""So long the source must have been the same before it is believed: longer than a node or a server takes to start."""

EMPTY_FACTOR: Final = 24
"""An empty source must have been so for so many times as long: people take a day to see that a folder is not mounted,
and nobody needs the room of a Dataset without files sooner."""

_LONGEST_VALUE: Final = 64
"""Characters of an annotation's value in a message."""

CONFIRMATIONS: Final = 3
"""So often at least it must have been found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule:
    """How much a source may lose.

    Attributes:
        percent: share of the files, or of the bytes, that a version may lack; 100: any, also all.
        confirm_seconds: for so long a source that lost more must be the same before it is believed.
        accepted: digests of versions of which somebody says that what followed may have lost anything.
    """

    percent: int = LOSS_PERCENT
    confirm_seconds: float = CONFIRM_SECONDS
    accepted: frozenset[str] = frozenset()


PLAIN_RULE: Final = LossRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondCount:
    """What a source has as another node finds it.

    Attributes:
        node: which; empty when none has counted it.
        files, bytes: as it counts them; None when none has.
        reason: why none has, for people.
    """

    node: str = ""
    files: int | None = None
    bytes: int = 0
    reason: str = ""

    def sees_more(self, now: SourcesSize) -> bool:
        """Whether it finds what the operator's listing lacks."""
        return self.files is not None and (
            sees_more(self.files, than=now.files) or sees_more(self.bytes, than=now.bytes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLoss:
    """A source that has lost more than it may, and since when.

    Attributes:
        version: digest of the last version that was taken.
        before: how large that was.
        now: how large the source is.
        since: when it was first found so, by the clock of the caller.
        times: how often it was found so since.
        second: what another node found the last time; None where a listing is one of several nodes anyway.
    """

    version: str
    before: SourcesSize
    now: SourcesSize
    since: float
    times: int = 1
    second: SecondCount | None = None

    @property
    def is_empty(self) -> bool:
        return self.now.files == 0

    def confirmed_at(self, rule: LossRule) -> float:
        """When it has been so for long enough."""
        return self.since + rule.confirm_seconds * (EMPTY_FACTOR if self.is_empty else 1)


def loss_of(
    *,
    version: str,
    before: SourcesSize,
    now: SourcesSize,
    rule: LossRule,
    clock: float,
    last: SourceLoss | None,
    second: SecondCount | None = None,
) -> SourceLoss | None:
    """An unconfirmed loss of a source's files; None when the listing is accepted.

    Args:
        version: digest of the last version that was taken.
        before: how large that was.
        now: how large the source is, all of it.
        clock: seconds that only grow.
        last: what was found the last time; None when it had lost nothing then.
        second: what another node finds; None where the listing is one of several nodes. One that finds more has the
            time begin again, and without any the source is not believed.
    """
    if version in rule.accepted or not has_lost(before=before, now=now, percent=rule.percent):
        return None
    is_same = (
        last is not None
        and last.version == version
        and (last.now.files, last.now.bytes) == (now.files, now.bytes)
    )
    if last is None or not is_same or (second is not None and second.sees_more(now)):
        return SourceLoss(version=version, before=before, now=now, since=clock, second=second)
    updated = replace(last, now=now, times=last.times + 1, second=second)
    unseconded = second is not None and second.files is None
    if updated.times >= CONFIRMATIONS and clock >= updated.confirmed_at(rule) and not unseconded:
        return None
    return updated


def next_look(
    loss: SourceLoss, *, rule: LossRule, compared_by: LossRule, least: float, clock: float
) -> float:
    """Seconds until a source that has lost something is looked at again: longer each time, and no longer than until it
    would be believed; none when the rule has changed since.

    Args:
        rule: what the source may lose now.
        compared_by: what it could lose when it was last compared.
        least: of the seconds.
        clock: seconds that only grow.
    """
    if rule != compared_by:
        return 0.0
    seconds_left = loss.confirmed_at(rule) - clock
    return max(least, min(least * 2.0 ** (loss.times - 1), seconds_left))


_CHANGING_SHARE: Final = 100
"""One in so many of the files of a source may come or go while two nodes look through it."""


def sees_more(witness: int, *, than: int) -> bool:
    """Whether a node sees so many more files of a source than another one that the other does not see all of it: a part
    of a folder that is not mounted there looks empty.

    Args:
        witness: files, or bytes, that the one sees.
        than: those that the other sees.
    """
    return witness - than > witness // _CHANGING_SHARE


def has_lost(*, before: SourcesSize, now: SourcesSize, percent: int) -> bool:
    """Whether a source lost all its files, or more than `percent` of its files or bytes."""
    if percent >= 100 or not before.files:
        return False
    if not now.files or (before.bytes and not now.bytes):
        return True
    kept_percent = 100 - percent
    fewer = 100 * now.files < kept_percent * before.files
    return fewer or (now.files < before.files and 100 * now.bytes < kept_percent * before.bytes)


def loss_text(loss: SourceLoss, *, rule: LossRule, annotation: str) -> str:
    """What is said of it to people. `annotation`: with which somebody says that it is right; a value that names another
    version is told of, since it does nothing."""
    before = f"{counted(loss.before.files, 'file')} ({human(loss.before.bytes)})"
    now = "is empty" if loss.is_empty else f"has {counted(loss.now.files, 'file')} ({human(loss.now.bytes)})"
    seconds = rule.confirm_seconds * (EMPTY_FACTOR if loss.is_empty else 1)
    other_versions = sorted(rule.accepted - {loss.version})
    useless = (
        f". Its value {printable(other_versions[0][:_LONGEST_VALUE])!r} names another version"
        if other_versions
        else ""
    )
    nodes = "" if loss.second is None else " on another node, too"
    return (
        f"the source {now} and had {before} in the version that is served: nothing is removed from the cache, and that "
        f"version stays{_second_text(loss)}. See whether the source is whole (a folder that is not mounted looks "
        f"empty). It is believed when it has been so for {duration(seconds)}{nodes}, or at once with the annotation "
        f"{annotation}={loss.version}{useless}"
    )


def _second_text(loss: SourceLoss) -> str:
    second = loss.second
    if second is None:
        return ""
    if second.files is None:
        return f". No other node has counted it: {second.reason}"
    count_text = f"{counted(second.files, 'file')} ({human(second.bytes)})"
    if second.sees_more(loss.now):
        return f". But node {second.node} finds {count_text} there"
    return f". Node {second.node} finds {count_text} there, too"
