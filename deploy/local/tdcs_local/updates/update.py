"""An update that was made, and the report of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Update:
    """A package whose pinned version changed, or could change."""

    name: str
    before: str
    after: str
    """The version that is pinned now; `before` where it was left."""
    beyond: str = ""
    """A newer version that was not taken, because it may break more."""
    held: str = ""
    """Why a person has to make this update."""
    changelog: str = ""
    """Where its changes are described."""
    notes: Sequence[str] = ()
    """What the changelog calls breaking."""


def report(updates: Sequence[Update]) -> str:
    """What was updated, what was left, and what to read before it is committed."""
    lines: list[str] = []
    for update in updates:
        change = f"{update.before} -> {update.after}" if update.after != update.before else update.before
        beyond = f" (not taken: {update.beyond})" if update.beyond else ""
        lines.append(f"{update.name} {change}{beyond}")
        if update.held:
            lines.append(f"    by hand: {update.held}")
        if update.changelog and update.after != update.before:
            lines.append(f"    changes: {update.changelog}")
        lines += [f"    breaking: {note}" for note in update.notes]
    return "\n".join(lines) if lines else "everything is as new as its pins allow"
