"""Numbers in sentences: durations in the unit that fits, ratios with the digits that mean something."""


def duration(seconds: float, *, digits: int = 2, beside: float = 0.0) -> str:
    """A time with at least so many digits: 0.4 s, 45 s, 12 min, 3.5 h or 12 days.

    Beside a longer one it is in the unit of that if it is at least one of it: 1.9 h beside 2.1 h.
    """
    for limit, size, unit in ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h")):
        if seconds < limit and (beside < limit or seconds < _NEXT[unit]):
            return f"{_digits(seconds / size, digits)} {unit}"
    return f"{_digits(seconds / 86_400.0, digits)} days"


_NEXT = {"s": 60.0, "min": 3_600.0, "h": 86_400.0}
"""Seconds of the unit after each."""


def times(ratio: float) -> str:
    """How many times as much: 1.03 times, 2.8 times, 21 times."""
    return f"{ratio:.2f} times" if ratio < 1.095 else f"{_digits(ratio, 2)} times"


def part(fraction: float) -> str:
    """A part that is neither nothing nor all: less than 1 %, 80 %, at most 99 %."""
    return "less than 1 %" if fraction < 0.005 else f"{max(min(round(100 * fraction), 99), 1)} %"


def _digits(value: float, digits: int) -> str:
    """A number with as many decimals as it takes for so many digits; whole numbers without."""
    before = 1 if value < 9.95 else 2 if value < 99.5 else 3
    text = f"{value:,.{max(digits - before, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
