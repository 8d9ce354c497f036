"""Errors that a user can mend."""

import contextlib
import sys
from collections.abc import Iterator

EXIT_CODE = 2
"""What a program ends with after an InputError."""


class InputError(ValueError):
    """Something that the user gave cannot be used.

    The message names the file, field or peer, the reason and the remedy. The command `tdcs-train` shows it as one
    sentence and ends with exit code 2.
    """


@contextlib.contextmanager
def ended_by_input_errors() -> Iterator[None]:
    """Ends a training script with one sentence and exit code 2 where an InputError would end it with a traceback."""
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(EXIT_CODE)
