"""Sizes, times, and what is wrong with a spec, for people: the form that messages use."""

from collections.abc import Sequence

from pydantic import ValidationError

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_NEXT = {"s": 60.0, "min": 3_600.0, "h": 86_400.0}
"""Seconds of the unit of time after each."""


def human(size: int) -> str:
    """A size in the units in which capacities of Kubernetes are given: 512 bytes, 6.4 GiB, 144 GiB.

    Everything that a user sees has them: columns, messages, commands, and the page of `tdcs ui`, which has its own.
    """
    value, unit = float(size), 0
    while value >= 1023.5 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    if unit == 0:
        return counted(size, "byte")
    text = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return f"{text.removesuffix('.0')} {_UNITS[unit]}"


def percent(part: int, whole: int) -> str:
    """A share such as 95%, rounded down, so that 100% means all of it; of nothing, everything is there."""
    return f"{100 * part // whole if whole else 100}%"


def speed(*, read: int, copied: int) -> str | None:
    """How fast data comes: ``1.2 MiB/s`` from the source, or ``1.2 MiB/s + 3 MiB/s copied`` when nodes give each other
    some of it; None when nothing comes."""
    if not (read or copied):
        return None
    return f"{human(read)}/s + {human(copied)}/s copied" if copied else f"{human(read)}/s"


def duration(seconds: float, *, digits: int = 2, alongside: float = 0.0) -> str:
    """A time with at least so many digits: 0.4 s, 45 s, 12 min, 3.5 h or 12 days.

    Next to a longer one it is in the unit of that if it is at least one of it: 1.9 h next to 2.1 h.
    """
    for limit, size, unit in ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h")):
        if seconds < limit and (alongside < limit or seconds < _NEXT[unit]):
            return f"{_digits(seconds / size, digits)} {unit}"
    return f"{_digits(seconds / 86_400.0, digits)} days"


def times(ratio: float) -> str:
    """How many times as much: 1.03 times, 2.8 times, 21 times."""
    return f"{ratio:.2f} times" if ratio < 1.095 else f"{_digits(ratio, 2)} times"


def _digits(value: float, digits: int) -> str:
    """A number with as many decimals as it takes for so many digits; whole numbers without."""
    before = 1 if value < 9.95 else 2 if value < 99.5 else 3
    text = f"{value:,.{max(digits - before, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(names: Sequence[str], *, most: int, count: int | None = None) -> str:
    """The first names, and how many others there are: a, b and 3 others.

    Args:
        most: so many names are written.
        count: how many there are in all; None: as many as names.
    """
    written = names[:most]
    others = (len(names) if count is None else count) - len(written)
    return ", ".join(written) + (f" and {counted(others, 'other')}" if others > 0 else "")


def field_path(steps: Sequence[str | int]) -> str:
    """Where a field is, as kubectl writes it: spec.replicaSpecs[0].template."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def wrong_fields(error: ValidationError, *, under: str = "") -> str:
    """The first fields that are wrong, each with the reason. `under`: the field that was looked at, such as spec."""
    parts = []
    for detail in error.errors()[:5]:
        # pydantic goes on with the name of a class, which says nothing to people.
        reason = detail["msg"].partition(" or instance of ")[0].replace("a valid dictionary", "an object")
        reason = reason.removeprefix("Value error, ")
        path = field_path([*([under] if under else ()), *detail["loc"]])
        parts.append(f"{path}: {reason}" if path else reason)
    return "; ".join(parts)


def explain_invalid(error: ValidationError) -> str:
    """Which fields of an object are wrong and why, with what to do; an API server with an older CRD may accept it."""
    return (
        f"the object cannot be understood ({wrong_fields(error)}): correct these fields, or create it again "
        "where they cannot be changed; if nothing is wrong with them, have the administrator see that the "
        "CustomResourceDefinitions are of the operator's version (tdcs crds)"
    )
