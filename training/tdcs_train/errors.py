"""Errors that a user can mend."""


class InputError(ValueError):
    """Something that the user gave cannot be used.

    The message names the file, field or peer, the reason and the remedy. The command `tdcs-train` shows it as one
    sentence and ends with exit code 2.
    """
