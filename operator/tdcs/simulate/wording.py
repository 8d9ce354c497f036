"""Numbers in sentences: durations in the unit that fits, ratios with the digits that mean something."""


def duration(seconds: float) -> str:
    """A time such as 0.4 s, 45 s, 12 min, 3.5 h or 12.4 days."""
    for limit, size, unit in ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h")):
        if seconds < limit:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 86_400.0)} days"


def times(ratio: float) -> str:
    """How many times as much: 1.03 times, 2.8 times, 21 times."""
    return f"{ratio:.2f} times" if ratio < 1.095 else f"{_digits(ratio)} times"


def part(fraction: float) -> str:
    """A part that is neither nothing nor all: less than 1 %, 80 %, at most 99 %."""
    return "less than 1 %" if fraction < 0.005 else f"{max(min(round(100 * fraction), 99), 1)} %"


def _digits(value: float) -> str:
    """Two digits below ten, whole numbers above."""
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:,.0f}"
