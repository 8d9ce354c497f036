"""How datasets share a cache: how many jobs read one at once, when it leaves, and how much teams may take."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from tdcs.api.base import LABEL_PATTERN, Model, defaulted, rule, rules
from tdcs.api.durations import Duration
from tdcs.api.quantities import QUANTITY_SCHEMA, to_bytes
from tdcs.api.selection import ABOVE_ZERO, IN_RANGE

OnLimit = Literal["Suspend", "Clone"]

ACCESS_RULES = (
    rule(
        "!has(self.onLimit) || self.onLimit != 'Clone' || has(self.maxConcurrentJobs)",
        "onLimit Clone needs maxConcurrentJobs, for without a limit no further copy is ever needed",
        field=".maxConcurrentJobs",
    ),
    rule(
        "!has(self.maxCopies) || (has(self.onLimit) && self.onLimit == 'Clone')",
        "maxCopies bounds the copies that onLimit Clone makes: set onLimit to Clone, or remove it",
        field=".maxCopies",
    ),
)
"""Rules between the fields."""


class Access(Model):
    """How many jobs may read the data at once."""

    max_concurrent_jobs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many TrainingJobs may read each copy at once, those of other Datasets with the same source counted; further
    ones wait in the queue for a place. Left out, there is no limit; to let no job read it, suspend the jobs."""
    on_limit: OnLimit = "Suspend"
    """What becomes of further jobs. Suspend: they wait until a job ends. Clone: a further copy is made for them on
    other nodes, from the nodes that have the data, and they wait until it is there."""
    max_copies: Annotated[int, Field(ge=1, le=64)] | None = None
    """With Clone: how many copies there may be in all; left out, as many as nodes and cache have room for."""


_CRON_RULES = (
    rule(
        r"self.matches('^ *([^ ]+ +){4}[^ ]+ *$') && self.matches('^[-0-9A-Za-z*,/#? ]+$')",
        "must be a cron line of five fields (minute, hour, day of the month, month, day of the week), such as "
        "0 3 * * 1",
    ),
    rule(
        r"!self.matches('^ *[^ ]+ +[^ ]+ +(30|31) +(0?2|(?i:feb)) +[^ ]+ *$') && "
        r"!self.matches('^ *[^ ]+ +[^ ]+ +31 +(0?[469]|11|(?i:apr|jun|sep|nov)) +[^ ]+ *$')",
        "never fires: that month has no such day",
    ),
)

PIN = "Pin"
TIMED = "Timed"

EVICTION_RULES = (
    rule(
        "has(self.policy) && self.policy == 'Timed' ? has(self.ttl) != has(self.schedule) : "
        "!has(self.ttl) && !has(self.schedule)",
        "policy Timed needs ttl or schedule, one of the two, and no other policy has any: set policy to Timed and one "
        "of them, or remove both",
        field=".policy",
    ),
)
"""Rules between the fields."""


class Eviction(Model):
    """When the data leaves the cache: never while a pod mounts its claim or a job waits for it."""

    policy: Annotated[str, Field(pattern="^[A-Z][A-Za-z0-9]{1,62}$")] = "LRU"
    """LRU: when others need its room, the least recently used of the idle Datasets first. LRFU: as LRU, and often used
    ones stay longer. NextUse: what waiting jobs will read stays, the first of the queue before all. Pin: never. Timed:
    not before its time (ttl or schedule), and then whether room is needed or not. Or the name of a policy that is
    installed beside the operator."""
    ttl: Duration | None = None
    """With policy Timed: how long it stays after it was loaded or last used, such as 12h or 168h."""
    schedule: (
        Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=rules(*_CRON_RULES))] | None
    ) = None
    """With policy Timed: when it leaves, as a cron line of five fields in UTC, such as "0 3 * * 1" for Mondays at
    03:00. What is in use then stays until the next time."""


LabelValue = Annotated[str, Field(max_length=63)]


class LabelTerm(Model):
    """A condition on a label."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How it is compared."""
    values: Annotated[
        list[LabelValue], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """With In and NotIn: the values."""


class NamespaceSelector(Model):
    """Labels of namespaces; all must hold. Empty: every namespace."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=64)] = Field(default={})
    """Labels with their values."""
    match_expressions: Annotated[
        list[LabelTerm], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """Conditions on labels."""

    @property
    def terms(self) -> list[Mapping[str, Any]]:
        """All conditions in one form."""
        plain = [
            {"key": key, "operator": "In", "values": [value]} for key, value in self.match_labels.items()
        ]
        return [*plain, *(term.model_dump() for term in self.match_expressions)]


def _above_zero(value: int | str) -> int | str:
    if to_bytes(value) <= 0:
        raise ValueError("must be a size above zero, such as 1Ti")
    return value


class CacheQuota(Model):
    """How much of the cache the Datasets of some namespaces may take together."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=LABEL_PATTERN)]
    """What it is called in messages."""
    namespace_selector: NamespaceSelector = defaulted(NamespaceSelector)
    """The namespaces by their labels; empty: all. kubernetes.io/metadata.name is the name of each."""
    bytes: Annotated[
        int | str,
        AfterValidator(_above_zero),
        WithJsonSchema(
            {
                **QUANTITY_SCHEMA,
                # Bounds its rule's cost: the API server limits what the rules of a list may cost.
                "maxLength": 32,
                "x-kubernetes-validations": [
                    rule(ABOVE_ZERO, "must be a size above zero, such as 1Ti"),
                    IN_RANGE,
                ],
            }
        ),
    ]
    """Bytes on all nodes, every copy counted. What Datasets of one source have on the same nodes counts once, for the
    oldest of them."""

    @property
    def limit_bytes(self) -> int:
        """The quota in bytes."""
        return to_bytes(self.bytes)
