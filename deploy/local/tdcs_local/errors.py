"""The one error a user of the local tool sees: what failed, why, where the log is, what to try."""

from pathlib import Path


class LocalError(Exception):
    """A step could not be done.

    ``what`` names the object and the attempt, ``why`` the reason (usually the end of a log), ``log`` the file
    that has the rest, ``remedy`` the next thing to try.
    """

    def __init__(self, *, what: str, why: str = "", log: Path | None = None, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.log = log
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines += ["  " + line for line in self.why.splitlines()]
        if self.log is not None:
            lines.append(f"  log: {self.log}")
        if self.remedy:
            lines.append(f"  try: {self.remedy}")
        return "\n".join(lines)
