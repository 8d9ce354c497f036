"""Objects drawn from a structural schema, and beyond it: here and there a value is something else entirely."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

TEXTS = (
    "", "a", "main", "gpu", "lots", "0", "-1", "1.5", "10Gi", "500m", "1e999999999", "nvidia.com/gpu", "cpu",
    "kubernetes.io/hostname", "In", "Exists", "Gt", "NoSchedule", "Never", "0-2", "a/b", "../x", "ü" * 70, "\0",
    "x" * 5000, "30m", "2030-01-01T00:00:00Z", "$(INDEX)", "NaN", "inf", "null",
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 7, -1, 64, 1000, 1 << 31, 1 << 63, -(1 << 70), 10**30)
_RULES = "x-kubernetes-validations"
KEYS = ("key", "operator", "values", "name", "image", "limits", "requests", "cpu", "nvidia.com/gpu", "x")


def anything(draw: random.Random, *, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = draw.randrange(8 if depth > 0 else 6)
    match kind:
        case 0:
            return None
        case 1:
            return draw.choice((True, False))
        case 2:
            return draw.choice(NUMBERS)
        case 3:
            return draw.choice((0.5, -1.5, 1e300))
        case 4 | 5:
            return draw.choice(TEXTS)
        case 6:
            return [anything(draw, depth=depth - 1) for _ in range(draw.randrange(3))]
        case _:
            return {draw.choice(KEYS): anything(draw, depth=depth - 1) for _ in range(draw.randrange(3))}


def from_schema(schema: Mapping[str, Any], draw: random.Random, *, odd: float = 0.02) -> Any:
    """A value of a structural schema; with the probability `odd`, at every place, any other value."""
    if draw.random() < odd:
        return anything(draw)
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return draw.choice((1, 2, "1", "2", "500m", "1Gi", draw.choice(TEXTS), draw.choice(NUMBERS)))
    match schema.get("type"):
        case "object":
            return _object(schema, draw, odd=odd)
        case "array":
            count = max(draw.randrange(3), schema.get("minItems", 0))
            return [from_schema(schema["items"], draw, odd=odd) for _ in range(count)]
        case "boolean":
            return draw.choice((True, False))
        case "integer":
            least, most = _bounds(schema)
            return draw.randint(least, max(least, min(most, 8)))
        case "number":
            return draw.random()
        case "string" if any("a duration" in rule["message"] for rule in schema.get(_RULES, ())):
            return draw.choice(("30m", "90s", "1h30m", "12h", draw.choice(TEXTS)))
        case "string":
            return draw.choice(("a", "main", "b-1", draw.choice(TEXTS)))
        case _:
            return anything(draw)


def _bounds(schema: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the largest number that the rules of a schema take."""
    written = " ".join(rule["rule"] for rule in schema.get(_RULES, ()))
    least, most = re.search(r"self >= (\d+)", written), re.search(r"self <= (\d+)", written)
    return int(least[1]) if least else 0, int(most[1]) if most else 8


def _object(schema: Mapping[str, Any], draw: random.Random, *, odd: float) -> dict[str, Any]:
    required = schema.get("required") or ()
    fields = {
        name: from_schema(inner, draw, odd=odd)
        for name, inner in (schema.get("properties") or {}).items()
        if name in required or draw.random() < 0.3
    }
    if isinstance(schema.get("additionalProperties"), Mapping):
        inner = schema["additionalProperties"]
        fields |= {draw.choice(KEYS): from_schema(inner, draw, odd=odd) for _ in range(draw.randrange(3))}
    if schema.get("x-kubernetes-preserve-unknown-fields") and draw.random() < 0.2:
        fields[draw.choice(KEYS)] = anything(draw)
    return fields
