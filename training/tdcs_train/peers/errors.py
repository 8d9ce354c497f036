"""Errors of other workers."""

from tdcs_train.errors import InputError

FINAL = "no restart helps"
"""In the reason that a worker ends with: what the user gave cannot be used, now or after a restart."""
CRASHED = "by an error of its program"
"""In that reason: anything else that was raised."""


class PeerError(InputError):
    """Another worker did not come, ended, fell silent, or does not fit; the message names it."""

    @property
    def is_final(self) -> bool:
        """Whether a restart of all workers ends the same way."""
        return FINAL in str(self)

    @property
    def is_crash(self) -> bool:
        """Whether the other worker's program failed, and not its machine or its connection."""
        return CRASHED in str(self)
