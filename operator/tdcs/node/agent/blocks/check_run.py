"""One comparison of a mount with its source: what is asked, how far it is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from tdcs.model.agent_state import Check, CheckState, FileFailure

NAMED: Final = 50
"""Files that differ again that are named; the others are counted."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept on the disk of a comparison that has ended: it is not made again after a restart."""

    mount: str
    check: Check
    state: CheckState


@dataclass
class CheckRun:
    """One comparison.

    Attributes:
        drop_until: on the loop's clock, when copies that cannot be dropped are waited for no longer.
        answered: when the source last gave what was asked for, or was first asked, on the loop's clock.
        changed: when the source first had another version of a file, on the loop's clock; None while it had none.
        failures, until: how often it ended with an error, and when it is begun again, on the loop's clock.
    """

    check: Check
    begun: bool = False
    done: bool = False
    files: int = 0
    bytes: int = 0
    wrong_count: int = 0
    wrong: list[FileFailure] = field(default_factory=list)
    drop_until: float = 0.0
    answered: float = 0.0
    changed: float | None = None
    failures: int = 0
    until: float = 0.0

    @classmethod
    def ended(cls, findings: Findings) -> CheckRun:
        return cls(
            check=findings.check,
            begun=True,
            done=True,
            files=findings.state.files,
            bytes=findings.state.bytes,
            wrong_count=findings.state.wrong_count,
            wrong=list(findings.state.wrong),
        )

    def begin(self) -> None:
        self.begun = True
        self.files = self.bytes = self.wrong_count = 0
        self.changed = None
        self.wrong.clear()

    def changed_for(self, now: float) -> float:
        """Seconds since the source first had another version of a file, which is now if it had none before."""
        if self.changed is None:
            self.changed = now
        return now - self.changed

    def report(self, failure: FileFailure) -> None:
        self.wrong_count += 1
        if len(self.wrong) < NAMED:
            self.wrong.append(failure)

    @property
    def state(self) -> CheckState:
        return CheckState(
            id=self.check.id,
            done=self.done,
            files=self.files,
            bytes=self.bytes,
            wrong=tuple(self.wrong),
            wrong_count=self.wrong_count,
        )
