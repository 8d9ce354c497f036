"""The parts of a cache: its pods, its disks, its journal, and whose folders it may read."""

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from tdcs.api import names
from tdcs.api.base import (
    LABEL_KEY,
    NO_LABEL_KEY,
    PATH_RULE,
    TOLERATION_RULES,
    Model,
    object_name_rule,
    rule,
    rules,
)
from tdcs.api.podtemplate import Resources
from tdcs.api.quantities import QUANTITY_SCHEMA, to_bytes
from tdcs.api.selection import ABOVE_ZERO, IN_RANGE, NOT_TAKEN
from tdcs.api.trainingjob_rules import NODE_FOLDER_RULE

Medium = Literal["MEM", "SSD", "HDD"]


def checked_quantity(value: int | str) -> int | str:
    """The value, where it is a size; ValueError otherwise."""
    to_bytes(value)
    return value


Quantity = Annotated[int | str, AfterValidator(checked_quantity), WithJsonSchema(dict(QUANTITY_SCHEMA))]
"""A size: bytes, or a Kubernetes quantity."""


class Toleration(Model):
    """A taint that the cache's pods put up with, as in a pod's spec."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *TOLERATION_RULES,
            rule(
                f"!has(self.key) || self.key == '' || {LABEL_KEY.replace('self', 'self.key')}",
                NO_LABEL_KEY,
                field=".key",
            ),
        )
    )

    key: Annotated[str, Field(max_length=317)] | None = None
    """The taint's key; empty with operator Exists matches every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How value is compared; Equal when left out."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """The taint's value, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The effect that is tolerated; all effects when left out."""
    toleration_seconds: int | None = None
    """With effect NoExecute: seconds before the pod leaves the node all the same."""


class Tier(Model):
    """A place for cached blocks on every cache node."""

    medium: Medium = "SSD"
    """What the path is on. MEM is for a tmpfs."""
    path: (
        Annotated[
            str, Field(min_length=2, max_length=256, json_schema_extra=rules(PATH_RULE, NODE_FOLDER_RULE))
        ]
        | None
    ) = None
    """The folder on the node; default /var/lib/tdcs/cache/NAME."""
    capacity: Annotated[
        Quantity,
        Field(
            json_schema_extra=rules(
                rule(ABOVE_ZERO, "must be a size above zero, such as 100Gi", subject=NOT_TAKEN),
                IN_RANGE,
            )
        ),
    ] = names.DEFAULT_TIER_CAPACITY
    """How many bytes of blocks each node may hold there."""

    @property
    def capacity_bytes(self) -> int:
        return to_bytes(self.capacity)


class Storage(Model):
    """Where the nodes keep cached blocks."""

    tiers: Annotated[
        list[Tier], Field(min_length=1, max_length=1, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[Tier()], json_schema_extra={"default": [{}]})
    """The storage tiers; exactly one is supported."""


class Component(Model):
    """The pods of one part of the cache."""

    resources: Resources = Field(default={})
    """CPU and memory of the container, as in a pod's spec (requests, limits)."""
    jvm_options: Annotated[
        list[
            Annotated[
                str,
                Field(
                    min_length=2,
                    max_length=512,
                    json_schema_extra=rules(
                        rule(
                            r"self.matches('^-[^\\s]+$')",
                            "must be one JVM option without blanks, such as -Xmx2g; write one item an option",
                        )
                    ),
                ),
            ]
        ],
        Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=[])
    """Options of the JVM, added after the built-in ones, so they win."""


class AgentComponent(Model):
    """The cache agents, each in a worker's pod."""

    resources: Resources = Field(default={})
    """CPU and memory of the container, as in a pod's spec (requests, limits). Some 150 MiB, 40 MiB more for every
    million files of the datasets in use, some 350 MiB for every million files that it has just loaded, and the page
    cache that a limit of memory counts."""


class Journal(Model):
    """The volume of Alluxio's master, which holds what it knows of exported files."""

    storage_class_name: (
        Annotated[
            str,
            Field(min_length=1, max_length=253, json_schema_extra=rules(object_name_rule("StorageClass"))),
        ]
        | None
    ) = None
    """Its StorageClass; left out, the cluster's default one."""
    size: Annotated[
        Quantity,
        Field(
            json_schema_extra=rules(
                rule(ABOVE_ZERO, "must be a size above zero, such as 5Gi", subject=NOT_TAKEN), IN_RANGE
            )
        ),
    ] = "5Gi"
    """Its size; 5Gi is enough for some ten million files."""


class FolderAccess(Model):
    """As whom agents read the folders of file sources. A change restarts the cache's pods."""

    groups: Annotated[
        list[Annotated[int, Field(ge=1, le=2_147_483_647)]],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=[])
    """Numbers of the groups that they are in besides their own, for files that only a group may read."""
    as_root: bool = False
    """As root with the capability DAC_OVERRIDE, which reads files of whomever. Left out, as a user without rights of
    its own, which reads what everybody, or a group of `groups`, may read."""
