"""Bandwidths and sizes as people write them."""

import math
import re

from tdcs_train.errors import InputError

DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"


def bandwidth(text: str) -> float:
    """Bytes a second: `1Gbit`, `100Mbit`, `125MB` (decimal), or a plain number of bytes a second.

    Raises:
        InputError: It is none of these, or not more than 0.
    """
    match = re.fullmatch(NUMBER + r"\s*(?:([kKMGT]?)(bit|B))?(?:/s)?", text.strip())
    value = float(match[1]) * DECIMAL[match[2] or ""] / (8 if match[3] == "bit" else 1) if match else 0.0
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            f"{text!r} is no bandwidth; write it like 1Gbit, 100Mbit or 125MB (a second), or as bytes a second, over 0"
        )
    return value


def seconds(text: str) -> float:
    """Seconds: `50us`, `0.5ms`, `1s`, or a plain number of seconds.

    Raises:
        InputError: It is none of these.
    """
    match = re.fullmatch(NUMBER + r"\s*(us|ms|s)?", text.strip())
    value = float(match[1]) * {"us": 1e-6, "ms": 1e-3}.get(match[2], 1.0) if match else math.nan
    if not math.isfinite(value):
        raise InputError(f"{text!r} is no time; write it like 50us, 0.5ms or 1s")
    return value


def size(text: str) -> float:
    """Bytes: `16Gi`, `500M`, or a plain number.

    Raises:
        InputError: It is none of these, or not more than 0.
    """
    match = re.fullmatch(NUMBER + r"\s*([KMGT]i|[kKMGT])?B?", text.strip())
    value = float(match[1]) * {**DECIMAL, **BINARY}[match[2] or ""] if match else 0.0
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{text!r} is no size; write it like 16Gi, 500M or as bytes, over 0")
    return value


def spoken_bytes(value: float) -> str:
    """Bytes for people: 1.5 GiB."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"
