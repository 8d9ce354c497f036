"""Values of options, and files, that several commands take."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tdcs_train.errors import InputError
from tdcs_train.plan import quantities
from tdcs_train.plan.graph import Graph
from tdcs_train.plan.profile_text import parse

Value = TypeVar("Value")


if TYPE_CHECKING:
    Parameter = click.ParamType[Any]
else:
    Parameter = click.ParamType  # generic for type checkers only before click 8.3


class Converted(Parameter):
    """An option's text, converted by a function that raises InputError."""

    def __init__(self, name: str, convert: Callable[[str], Any]) -> None:
        self.name = name
        self._convert = convert

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The converted value; click names the option in its error."""
        try:
            return self._convert(value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(str(error), param, ctx)


def _listed(convert: Callable[[str], Value]) -> Callable[[str], list[Value]]:
    return lambda text: [convert(part) for part in text.split(",")]


def _count(text: str) -> int:
    # isdecimal, and ASCII: int() refuses a superscript that isdigit() takes, and no more digits than any count has.
    if not (text.strip().isdecimal() and text.isascii() and len(text) < 10 and int(text) >= 1):
        raise InputError(f"{text!r} is no whole number over 0")
    return int(text)


def finite(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """Refuses nan and infinity, which ranges of click let pass."""
    del context
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number of seconds", param=parameter)
    return value


BANDWIDTH = Converted("bandwidth", quantities.bandwidth)
BANDWIDTHS = Converted("bandwidth[,...]", _listed(quantities.bandwidth))
COUNTS = Converted("count[,...]", _listed(_count))
SECONDS = Converted("seconds[,...]", _listed(quantities.seconds))
SIZE = Converted("size", quantities.size)


def read_profile(path: Path) -> Graph:
    """The graph of a profile file.

    Raises:
        InputError: It cannot be read or planned.
    """
    return parse(read_text(path), source=str(path))


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        InputError: It cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text: byte {error.start} is not UTF-8") from error


def print_json(value: object) -> None:
    """One document on standard output."""
    click.echo(json.dumps(value, indent=2))
