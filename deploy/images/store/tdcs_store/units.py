"""Rates and sizes as people write them."""

import re

_RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZE_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
MIN_RATE = 100_000
"""Bits per second; below it a single full packet takes longer than TCP's first time-out."""
MAX_RATE = 40_000_000_000
"""Bits per second; more than a link between two pods ever carries, so rather a typing error."""


class UnitError(ValueError):
    """A text is not a rate or a size; says what would be one."""


def parse_rate(text: str) -> int | None:
    """``200mbit`` -> 200_000_000 (bits per second, decimal units); ``unlimited`` -> None.

    Only units of bits are known: ``200mb`` could mean two things. Raises :class:`UnitError`.
    """
    word = text.strip().lower()
    if word == "unlimited":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", word)
    if match is None or match.group(2) not in _RATE_UNITS:
        raise UnitError(
            f"{text!r} is not a rate: write a number and kbit, mbit or gbit (200mbit), or unlimited"
        )
    rate = round(float(match.group(1)) * _RATE_UNITS[match.group(2)])
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UnitError(
            f"the rate {text!r} is outside of what can be shaped, "
            f"{format_rate(MIN_RATE)} to {format_rate(MAX_RATE)}; write unlimited for no limit"
        )
    return rate


def format_rate(rate: int | None) -> str:
    """The shortest text that :func:`parse_rate` reads back to the same number."""
    if rate is None:
        return "unlimited"
    for unit in ("gbit", "mbit", "kbit"):
        if rate % _RATE_UNITS[unit] == 0:
            return f"{rate // _RATE_UNITS[unit]}{unit}"
    return f"{rate}bit"


def parse_size(text: str) -> int:
    """``100KiB``, ``100Ki`` -> 102_400; ``2MB``, ``2M`` -> 2_000_000; ``17`` -> 17 (bytes).

    Raises :class:`UnitError`.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = match.group(2) if match else ""
    if unit not in _SIZE_UNITS:
        unit = unit.removesuffix("b")
    if match is None or unit not in _SIZE_UNITS:
        raise UnitError(f"{text!r} is not a size: write bytes, or a number and KB, MB, GB, KiB, MiB or GiB")
    return round(float(match.group(1)) * _SIZE_UNITS[unit])


def parse_sizes(text: str) -> tuple[int, int]:
    """``10KiB`` -> (10240, 10240); ``10KiB-200KiB`` -> (10240, 204800): the smallest and the largest.

    Raises :class:`UnitError`.
    """
    low, dash, high = text.partition("-")
    sizes = parse_size(low), parse_size(high) if dash else parse_size(low)
    if sizes[0] > sizes[1]:
        raise UnitError(f"{text!r} runs from the larger size to the smaller: write {high}-{low}")
    return sizes
