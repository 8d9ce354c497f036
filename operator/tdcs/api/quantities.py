"""Sizes as users write them (Kubernetes quantities) and as the status gives them (integers of bytes)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from lightkube.utils.quantity import parse_quantity
from pydantic import AfterValidator, WithJsonSchema

QUANTITY_PATTERN = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[kMGTPE]|[eE]\+?[0-9]+)?$"

MOST_BYTES = 1 << 63
"""Sizes are below this: 64-bit numbers in the API server, the cache and the kernel."""


class TooLargeError(ValueError):
    """A size is no 64-bit number."""


def to_bytes(quantity: int | str) -> int:
    """Bytes of a quantity such as ``10Gi``, ``500M`` or ``1073741824``; fractions of a byte are dropped.

    Raises:
        ValueError: it is not a quantity, or it is negative.
        TooLargeError: it is too large for a 64-bit number.
    """
    try:
        value = parse_quantity(str(quantity))
    except ValueError:
        value = None
    if value is None or value < 0:
        raise ValueError(f"{quantity!r} is not a size; write bytes or a quantity such as 10Gi or 500M")
    if value >= MOST_BYTES:
        raise TooLargeError(f"{quantity!r} is too large: sizes must be below 8Ei")
    return int(value)


def _checked(value: int | str) -> int | str:
    to_bytes(value)
    return value


QUANTITY_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
    }
)

Quantity = Annotated[int | str, AfterValidator(_checked), WithJsonSchema(dict(QUANTITY_SCHEMA))]
"""A size: bytes, or a Kubernetes quantity."""
