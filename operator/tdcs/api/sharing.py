"""How datasets share a cache: how many jobs read one at once, when it leaves, who else may read it, and how much teams
may take."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from tdcs.api.base import LABEL, LABEL_PATTERN, Model, defaulted, rule, rules, worded
from tdcs.api.durations import DURATION_RULE, Duration
from tdcs.api.namespace_selector import NamespaceSelector
from tdcs.api.quantities import QUANTITY_SCHEMA, to_bytes
from tdcs.api.selection import ABOVE_ZERO, IN_RANGE, NOT_TAKEN

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

    max_concurrent_jobs: (
        Annotated[
            int,
            Field(
                ge=1,
                le=10_000,
                json_schema_extra=rules(
                    rule(
                        "self >= 1",
                        "must be at least 1: leave it out for no limit; to let no job read it, suspend the jobs",
                    )
                ),
            ),
        ]
        | None
    ) = None
    """How many TrainingJobs may read each copy of this Dataset at once; further ones wait in the queue for a place.
    Jobs of other Datasets with the same source do not count. Left out, there is no limit; to let no job read it,
    suspend the jobs."""
    on_limit: OnLimit = "Suspend"
    """What becomes of further jobs. Suspend: they wait until a job ends. Clone: a further copy is made for them on
    other nodes, from the nodes that have the data, and they wait until it is there."""
    max_copies: Annotated[int, Field(ge=1, le=64)] | None = None
    """With Clone: how many copies there may be in all, those of spec.placement.copies among them; left out, as many as
    nodes and cache have room for. Of more copies that there are already, those that jobs read stay until these end."""


_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "sun|mon|tue|wed|thu|fri|sat"


def _cron_field(value: str, more: str = "") -> str:
    """The pattern of a field of a cron line: a list of values, ranges and steps. `more`: what else may stand there."""
    item = f"([*?]|(?i:{value})(-(?i:{value}))?)(/0*[1-9][0-9]*)?{more}"
    return f"({item})(,({item}))*"


_CRON = (
    "^ *"
    + " +".join(
        (
            _cron_field("[0-5]?[0-9]"),
            _cron_field("[01]?[0-9]|2[0-3]"),
            _cron_field("0?[1-9]|[12][0-9]|3[01]", "|[lL]"),
            _cron_field(f"0?[1-9]|1[0-2]|{_MONTHS}"),
            _cron_field(f"0?[0-7]|{_DAYS}", f"|(?i:0?[0-7]|{_DAYS})#[1-5]|[lL][0-7]"),
        )
    )
    + " *$"
)
"""Regular expression of a cron line whose values are in their ranges."""

_CRON_RULES = (
    rule(
        r"self.matches('^ *([^ ]+ +){4}[^ ]+ *$') && self.matches('^[-0-9A-Za-z*,/#? ]+$')",
        "must be a cron line of five fields (minute, hour, day of the month, month, day of the week), such as "
        "0 3 * * 1",
    ),
    rule(
        f"!self.matches('^ *([^ ]+ +){{4}}[^ ]+ *$') || self.matches('{_CRON}')",
        "a value is out of range: minutes go from 0 to 59, hours to 23, days from 1 to 31, months from 1 to 12 or JAN "
        "to DEC, days of the week from 0 to 7 or SUN to SAT, and steps from 1",
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


_POLICY_NAME: Final = "^[A-Z][A-Za-z0-9]{1,62}$"
_WHICH_POLICY: Final = (
    f"must be LRU, LRFU, NextUse, {PIN} or {TIMED}, in this spelling, or the name of a policy that is installed with "
    "the operator, which begins with a capital letter"
)


def _checked_policy(policy: str) -> str:
    if re.fullmatch(_POLICY_NAME, policy) is None:
        raise ValueError(_WHICH_POLICY)
    return policy


class Eviction(Model):
    """When the data leaves the cache: never while a pod mounts its claim or a job waits for it."""

    policy: Annotated[
        str,
        AfterValidator(_checked_policy),
        Field(
            max_length=63,
            json_schema_extra=rules(rule(f"self.matches('{_POLICY_NAME}')", _WHICH_POLICY)),
        ),
    ] = "LRU"
    """LRU: when others need its room, the least recently used of the idle Datasets first. LRFU: as LRU, and often used
    ones stay longer. NextUse: what waiting jobs will read stays, the first of the queue before all. Pin: never. Timed:
    not before its time (ttl or schedule), and then whether room is needed or not. Or the name of a policy that is
    installed next to the operator."""
    ttl: (
        Annotated[
            Duration,
            Field(
                json_schema_extra=rules(
                    DURATION_RULE,
                    rule("!self.matches('^([0.]+(h|m|s|ms))+$')", "must be above zero, such as 12h"),
                )
            ),
        ]
        | None
    ) = None
    """With policy Timed: how long it stays after it was loaded or last used, such as 12h or 168h."""
    schedule: (
        Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=rules(*_CRON_RULES))] | None
    ) = None
    """With policy Timed: when it leaves, as a cron line of five fields in UTC, such as "0 3 * * 1" for Mondays at
    03:00. What is in use then stays until the next time."""


def _above_zero(value: int | str) -> int | str:
    if to_bytes(value) <= 0:
        raise ValueError("must be a size above zero, such as 1Ti")
    return value


class CacheQuota(Model):
    """How much of the cache the Datasets of some namespaces may take together."""

    name: Annotated[str, Field(min_length=1, max_length=63, **LABEL)]
    """What it is called in messages."""
    namespace_selector: NamespaceSelector = defaulted(NamespaceSelector)
    """The namespaces by their labels; empty: all. kubernetes.io/metadata.name is the name of each."""
    bytes: Annotated[
        int | str,
        AfterValidator(_above_zero),
        WithJsonSchema(
            {
                **QUANTITY_SCHEMA,
                "x-kubernetes-validations": [
                    rule(ABOVE_ZERO, "must be a size above zero, such as 1Ti", subject=NOT_TAKEN),
                    IN_RANGE,
                ],
            }
        ),
    ]
    """Bytes on all nodes, every copy counted. What several Datasets that this quota counts want of one source on the
    same node counts once. What others want there as well counts in full: they may leave at any time."""

    @property
    def limit_bytes(self) -> int:
        return to_bytes(self.bytes)


def _checked_path(path: str) -> str:
    if any(piece in ("", ".", "..") for piece in path.rstrip("/").split("/")):
        raise ValueError(
            f"path {path!r} leads out of the source: write a folder or file below it, such as train"
        )
    return path


class SharedWith(Model):
    """Namespaces that may read a Dataset's source through Datasets of their own."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.namespaceSelector) || (has(self.namespaces) && size(self.namespaces) > 0)",
                "names no namespace: give namespaces, or namespaceSelector ({} is every namespace)",
            )
        )
    )

    namespaces: Annotated[
        list[
            Annotated[
                str,
                Field(
                    min_length=1, max_length=63, **worded(LABEL_PATTERN, "must be the name of a namespace")
                ),
            ]
        ],
        Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=[])
    """Their names."""
    namespace_selector: NamespaceSelector | None = None
    """And those with these labels; an empty selector means every namespace, and left out it is none."""
    paths: Annotated[
        list[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=512,
                    **worded(
                        r"^[^/\\\x00-\x1f][^\\\x00-\x1f]*$",
                        "must be a folder or file below the source, without a slash before it and without backslashes",
                    ),
                ),
                AfterValidator(_checked_path),
            ]
        ],
        Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=[])
    """Folders or files of the source that they get, relative to it; empty: all of it."""
