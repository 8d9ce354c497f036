"""Which part of a dataset is meant: what `Dataset.spec.preload` and a Preload have in common."""

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from tdcs.api.base import Model, rule, rules
from tdcs.api.durations import Time
from tdcs.api.quantities import QUANTITY_PATTERN, QUANTITY_SCHEMA, to_bytes

_IS_QUANTITY = f"self.matches(r'{QUANTITY_PATTERN}')"

ABOVE_ZERO = (
    f"type(self) == int ? self > 0 : {_IS_QUANTITY} && quantity(self).isGreaterThan(quantity('0')) || "
    "self.matches('[eE][+]?[0-9]{3}')"
)
"""CEL: a quantity above zero. One with a huge exponent is that, too, and never parsed: `IN_RANGE` refuses it."""

NOT_TAKEN = "'\"' + string(self) + '\" is not taken:'"
"""CEL: the value that is refused. The API server shows none of a field that may be a number or a text."""

IN_RANGE = rule(
    f"type(self) == int || (!self.matches('[eE][+]?[0-9]{{3}}') && "
    f"(!{_IS_QUANTITY} || quantity(self).isLessThan(quantity('8Ei'))))",
    "must be below 8Ei: sizes are 64-bit numbers",
    subject=NOT_TAKEN,
)
"""The rule that every size keeps to."""

ONE_OF_TWO = rule(
    "!(has(self.percent) && has(self.amount))",
    "percent and amount exclude each other: remove one of them",
    field=".percent",
)


def _path(value: str) -> str:
    if (
        not value
        or value.startswith("/")
        or any(step in {"", ".", ".."} for step in value.strip("/").split("/"))
    ):
        raise ValueError("must be relative to the source, such as train or val/a.jpg, without '..'")
    return value


Percent = Annotated[int, Field(ge=1, le=100)]
"""A share in whole percent."""


def _positive(value: int | str) -> int | str:
    if to_bytes(value) <= 0:
        raise ValueError("must be above zero")
    return value


def _quantity_above_zero(message: str) -> WithJsonSchema:
    """The schema of a quantity with its rule inside: pydantic would drop a rule next to an optional one."""
    return WithJsonSchema(
        {
            **QUANTITY_SCHEMA,
            "x-kubernetes-validations": [rule(ABOVE_ZERO, message, subject=NOT_TAKEN), IN_RANGE],
        }
    )


Amount = Annotated[
    int | str,
    AfterValidator(_positive),
    _quantity_above_zero("must be a size above zero, such as 100Gi"),
]

Path = Annotated[
    str,
    AfterValidator(_path),
    Field(
        min_length=1,
        max_length=1024,
        json_schema_extra=rules(
            rule(
                "!self.startsWith('/') && !self.contains('//') && "
                "!self.split('/').exists(step, step == '..' || step == '.')",
                "must be relative to the source, such as train or val/a.jpg, without '..': "
                "nothing outside the source can be loaded",
            )
        ),
    ),
]

StartTime = Time | None

Bandwidth = (
    Annotated[
        int | str,
        AfterValidator(_positive),
        _quantity_above_zero("must be above zero: bytes a second, such as 100M; leave it out for no limit"),
    ]
    | None
)


class Selection(Model):
    """A part of a dataset: some of its folders or files, and of these a share or an amount."""

    paths: Annotated[
        list[Path], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=[])
    """Folders or files, relative to the source; empty: all."""
    percent: Percent | None = None
    """The share of these bytes that is loaded, in whole percent from 1 to 100; left out, all. Always the same blocks
    are taken, and a larger share contains a smaller one."""
    amount: Amount | None = None
    """The bytes of these that are loaded at most, such as 100Gi; instead of percent."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "Selection":
        if self.percent is not None and self.amount is not None:
            raise ValueError("percent and amount exclude each other: remove one of them")
        return self

    @property
    def fraction(self) -> float | None:
        """The share as a fraction, above 0 and at most 1; None for all."""
        return None if self.percent is None else self.percent / 100

    @property
    def amount_bytes(self) -> int | None:
        return None if self.amount is None else to_bytes(self.amount)
