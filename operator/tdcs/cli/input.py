"""Wrong input ends a command with one sentence and exit code 2, as a wrong option does."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from tdcs.api.failures import InputError

P = ParamSpec("P")
R = TypeVar("R")


def shown_name(path: Path) -> str:
    """The name of a file in messages; `-` is standard input."""
    return "standard input" if str(path) == "-" else str(path)


class BadInput(click.ClickException):
    """An error in what the user gave."""

    exit_code = 2


def inputs_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Turn errors in the input into messages without a traceback."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            raise BadInput(str(error)) from error

    return wrapped
