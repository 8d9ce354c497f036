"""Failures as people see them: files that cannot be loaded, in statuses, and wrong input of commands."""

from tdcs.api.base import Model

FAILED_FILES_KEPT = 20
"""How many failed files a status names."""


class FailedFile(Model):
    """A file that could not be loaded whole."""

    path: str
    """The file, relative to the source."""
    reason: str
    """Why."""


class InputError(Exception):
    """A file or an option of a command that cannot be used.

    The message names the file and the row or key, what is wrong with it, and what to do.
    """
