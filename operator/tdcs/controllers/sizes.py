"""Sizes for people: the form that status messages use."""

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def human(size: int) -> str:
    """A size in decimal units with at most three digits: 999 bytes, 1.2 MB, 144 GB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    if unit == 0:
        return f"{size} bytes"
    return f"{value:.1f} {_UNITS[unit]}" if value < 99.95 else f"{value:.0f} {_UNITS[unit]}"


def percent(part: int, whole: int) -> str:
    """A share such as 95%, rounded down, so that 100% means all of it; of nothing, everything is there."""
    return f"{100 * part // whole if whole else 100}%"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 node, 2 nodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
