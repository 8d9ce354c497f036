"""Sizes as users write them (Kubernetes quantities) and as the status gives them (integers of bytes)."""

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

QUANTITY_PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[kMGTPE]|[eE]\+?[0-9]{1,2})?$"
"""Exponents have two digits at most: the API server compares quantities digit by digit, and ``1e999999999`` with a
billion of them would cost it minutes."""
MOST_CHARACTERS = 32
"""Of a quantity. The API server limits what rules may cost, by what the longest value would."""

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))"
    r"(?:(?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,9}))?",
    re.ASCII,
)
"""The grammar of `resource.Quantity` in Kubernetes' apimachinery."""

_BINARY: Final = MappingProxyType(
    {unit: Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
)
_DECIMAL: Final = MappingProxyType(
    {
        unit: Decimal(1000) ** power
        for power, unit in zip(range(-3, 7), ("n", "u", "m", "", *"kMGTPE"), strict=True)
    }
)

MOST_BYTES = 1 << 63
"""Sizes are below this: 64-bit numbers in the API server, the cache and the kernel."""


class TooLargeError(ValueError):
    """A size is no 64-bit number."""


def parse_quantity(quantity: int | str) -> Decimal:
    """The value of a Kubernetes quantity such as ``100m``, ``1.5Gi``, ``2e3`` or ``8``.

    The package `kubernetes` has such a function, too; it takes ``NaN``, ``1_000`` and ``5mi`` for quantities, and its
    import costs 34 MB in processes that need nothing else of it.

    Raises:
        ValueError: it is not a quantity.
    """
    parts = _QUANTITY.fullmatch(str(quantity))
    if parts is None:
        raise ValueError(f"{quantity!r} is not a Kubernetes quantity, such as 500m, 8 or 10Gi")
    number, binary = Decimal(parts["number"]), parts["binary"]
    if binary:
        return number * _BINARY[binary]
    if parts["exponent"]:
        return Decimal(f"{parts['number']}e{parts['exponent']}")
    return number * _DECIMAL[parts["decimal"] or ""]


def to_bytes(quantity: int | str) -> int:
    """Bytes of a quantity such as ``10Gi``, ``500M`` or ``1073741824``; fractions of a byte are dropped.

    Raises:
        ValueError: it is not a quantity, or it is negative.
        TooLargeError: it is too large for a 64-bit number.
    """
    try:
        value = parse_quantity(quantity)
    except ValueError:
        value = Decimal(-1)
    if value < 0:
        raise ValueError(f"{quantity!r} is not a size; write bytes or a quantity such as 10Gi or 500M")
    if value >= MOST_BYTES:
        raise TooLargeError(f"{quantity!r} is too large: sizes must be below 8Ei")
    return int(value)


QUANTITY_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        # No pattern: each field has a rule that says in words what it holds, and this would add a second error.
        "maxLength": MOST_CHARACTERS,
    }
)
