"""TrainingJob: a distributed training run that is placed where its data is."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from tdcs.api.base import (
    Model,
    OnceSeen,
    defaulted,
    list_map,
    object_name_rule,
    own_namespace_rule,
    rule,
    rules,
)
from tdcs.api.durations import Duration
from tdcs.api.podtemplate import PodTemplate, container_names
from tdcs.api.readers import READERS_PATTERN, is_reader, parse_readers
from tdcs.api.run_policy import RUN_POLICY_RULES, RunPolicy
from tdcs.api.targets import with_target
from tdcs.api.trainingjob_rules import (
    AT_LEAST_ONE,
    EXIT_CODES_NEED_NEVER,
    FROZEN,
    MOUNT_RULES,
    NO_WORKER,
    PRIORITY_CLASSES_DIFFER,
    READERS_BEYOND_WORKERS,
    READERS_NEED_EXTENDER,
    REPLICAS_OF_WORKERS,
    RESTART_NEEDS_NEVER,
    ROLE_RULES,
    SPEC_RULES,
    readers_of,
)
from tdcs.api.trainingjob_status import TrainingJobStatus

Framework = Literal["TensorFlow", "PyTorch", "Horovod", "None"]
Role = Literal["Chief", "Launcher", "PS", "Worker"]
ROLES: tuple[Role, ...] = get_args(Role)

MOST_RANK = 1_000_000
"""The largest rank of a job among those of its namespace, and with a minus the smallest."""

READING_ROLES: frozenset[Role] = frozenset({"Chief", "Worker"})
"""The roles that read data. Parameter servers and launchers get the volumes, but no place near the data: that is
left to the pods that gain from it."""


class ReplicaSpec(Model):
    """The pods of one role."""

    name: Role
    """The role. Worker: every job has it, and worker 0 decides how the job ends where there is no Chief or Launcher.
    PS: parameter servers, of TensorFlow or PyTorch; they serve until the job ends, and are then ended. Chief:
    TensorFlow's chief, one pod; the job ends as it ends. Launcher: Horovod's launcher, one pod; the job ends as it
    ends."""
    replicas: Annotated[int, Field(le=1000, json_schema_extra=AT_LEAST_ONE)] | None = None
    """How many pods; 1 when left out. The number of workers is spec.workers."""
    template: PodTemplate
    """The pods, as in a Job. For workers and the chief of a job that reads datasets schedulerName defaults to the
    scheduler that was installed with TDCS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePods:
    """The pods of a role that a job has.

    Attributes:
        replicas: how many.
        template: what they are, as in a Job.
    """

    replicas: int
    template: dict[str, Any]


class Readiness(Model):
    """How much of a dataset must be cached before the job starts."""

    percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Share of the bytes, in whole percent. With 0 the job starts as soon as the dataset can be read, and loading
    goes on next to it. A dataset of which everything that fits is loaded, or that is not preloaded, never holds
    the job back."""
    timeout: Duration | None = None
    """How long after the job's creation it waits for that share, as in 30m; then it starts with what is there.
    Left out, it waits as long as it takes."""


def _readers(value: str) -> str:
    if not re.fullmatch(READERS_PATTERN, value):
        raise ValueError("must be indices of workers, such as 0-2 or 0,4")
    parse_readers(value)
    return value


class DatasetUse(Model):
    """A dataset that the job reads."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            json_schema_extra=rules(
                own_namespace_rule("a Dataset of the job's own namespace"),
                object_name_rule("Dataset"),
                rule("size(self) <= 63", "must be at most 63 characters: no Dataset has a longer name"),
            ),
        ),
    ]
    """A Dataset in the job's namespace."""
    mount_path: Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=MOUNT_RULES)]
    """Where the containers see it, read-only."""
    readiness: Readiness = defaulted(Readiness)
    """How much of it must be cached before the job starts."""
    readers: (
        Annotated[
            str,
            AfterValidator(_readers),
            Field(
                min_length=1,
                max_length=64,
                json_schema_extra=rules(
                    rule(
                        f"self.matches('{READERS_PATTERN}') && self.split(',').all(part, "
                        "int(part.split('-')[0]) <= int(part.split('-')[size(part.split('-')) - 1]))",
                        "must be indices of workers, such as 0-2 or 0,4",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """The indices of the workers that read it, such as 0-2 (the first stage of a pipeline); left out, all read it. The
    others are placed without regard to it, leave the nodes that hold it to those that read it, and do not count in
    locality. Only with scheduling.mode Extender."""


class Scheduling(Model):
    """When the pods may exist, and who places them."""

    mode: Literal["Extender", "Affinity"] = "Extender"
    """Extender: the scheduler that was installed with TDCS ranks nodes by the data they hold when it places a pod.
    Affinity: the pods prefer the nodes that held data when the job was admitted, and any scheduler places them: it
    weighs that against its other preferences (even spread, balance), where Extender puts data first."""
    gang: bool = True
    """True: no pod exists until all of them fit at once on what is free, so that two jobs never hold half of their
    GPUs each. False: pods are made at once, and run as they find room; right where nodes are added on demand."""
    priority_class_name: (
        Annotated[
            str,
            Field(min_length=1, max_length=253, json_schema_extra=rules(object_name_rule("PriorityClass"))),
        ]
        | None
    ) = None
    """The PriorityClass of the pods; jobs with the larger value enter first."""
    rank: Annotated[int, Field(ge=-MOST_RANK, le=MOST_RANK)] = 0
    """The place among the waiting jobs of its namespace with the same priority: those of smaller rank come first, of
    one rank the older. It puts the job before none of another namespace. `tdcs queue move` sets it, at any time. Not in
    a queue of Kueue."""


class Elastic(Model):
    """The bounds in which the number of workers may change while the job runs."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)]
    """The fewest workers."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """The most workers."""


class TrainingJobSpec(Model):
    """What runs, on which data."""

    framework: Framework = "None"
    """Whose rendezvous environment the pods get. TensorFlow: TF_CONFIG. PyTorch: MASTER_ADDR, MASTER_PORT, RANK,
    WORLD_SIZE, and torchrun's PET_ variables. Horovod: the hosts of the workers, in the form horovodrun takes.
    None: nothing."""
    workers: Annotated[int, Field(le=1000, json_schema_extra=AT_LEAST_ONE)] = 1
    """How many workers: the pods of the role Worker. It stands here because kubectl scale and a
    HorizontalPodAutoscaler reach no item of a list; they set it in an elastic job."""
    replica_specs: Annotated[
        list[ReplicaSpec],
        Field(min_length=1, max_length=len(ROLES), json_schema_extra=list_map("name", **ROLE_RULES)),
    ]
    """The roles of the job, each with the template of its pods, and of all but the workers their number."""
    datasets: Annotated[
        list[DatasetUse],
        Field(
            max_length=16,
            json_schema_extra=list_map(
                "name",
                **rules(
                    rule(
                        "self.all(one, self.exists_one(other, other.mountPath == one.mountPath))",
                        "two datasets have the same mountPath: give each its own",
                    ),
                    rule(
                        "!self.exists(one, self.exists(other, other.mountPath.startsWith(one.mountPath + '/')))",
                        "a mountPath is below another's, whose volume is read-only: mount the datasets side by side",
                    ),
                    rule(
                        "size(self) == size(oldSelf) && self.all(one, oldSelf.exists(old, old.name == one.name && "
                        "old.mountPath == one.mountPath && has(old.readers) == has(one.readers) && "
                        "(!has(one.readers) || old.readers == one.readers)))",
                        FROZEN,
                    ),
                ),
            ),
        ),
    ] = Field(default=[])
    """The datasets that the job reads."""
    scheduling: Scheduling = defaulted(Scheduling)
    """When the pods may exist, and who places them."""
    elastic: Elastic | None = None
    """The bounds in which the number of workers may change while the job runs (kubectl scale, an autoscaler).
    Left out, it is fixed."""
    run_policy: RunPolicy = defaulted(RunPolicy, **RUN_POLICY_RULES)
    """How the job runs, ends and is cleaned up."""

    @property
    def is_elastic_gang(self) -> bool:
        """Whether the queue decides how many workers the job has."""
        return self.elastic is not None and self.scheduling.gang

    def by_role(self) -> dict[Role, RolePods]:
        """The roles that the job has, in the order of their names, each for the nodes that run its target."""
        return {
            spec.name: RolePods(
                replicas=self.workers if spec.name == "Worker" else spec.replicas or 1,
                template=with_target(spec.template),
            )
            for spec in sorted(self.replica_specs, key=lambda spec: spec.name)
        }

    @property
    def worker(self) -> RolePods:
        return self.by_role()["Worker"]

    def datasets_of(self, role: Role, index: int | None) -> list[DatasetUse]:
        """The datasets that one pod reads; of a pod with an unknown index all that its role reads."""
        if role not in READING_ROLES:
            return []
        return [use for use in self.datasets if role != "Worker" or is_reader(use.readers, index)]

    @model_validator(mode="after")
    def _roles_are_named_once(self) -> "TrainingJobSpec":
        roles = [spec.name for spec in self.replica_specs]
        if len(set(roles)) < len(roles):
            raise ValueError("replicaSpecs names a role twice: keep one item for each")
        if "Worker" not in roles:
            raise ValueError(NO_WORKER)
        if any(spec.name == "Worker" and spec.replicas is not None for spec in self.replica_specs):
            raise ValueError(REPLICAS_OF_WORKERS)
        return self

    @model_validator(mode="after")
    def _readers_exist(self) -> "TrainingJobSpec":
        workers = self.workers if self.elastic is None else self.elastic.min_replicas
        for use in self.datasets:
            if use.readers is None:
                continue
            subject = readers_of(use.name)
            if self.scheduling.mode != "Extender":
                raise ValueError(f"{subject} {READERS_NEED_EXTENDER}")
            if max(parse_readers(use.readers)) >= workers:
                raise ValueError(f"{subject} {READERS_BEYOND_WORKERS}")
        return self

    @model_validator(mode="after")
    def _restarts_fit_the_templates(self) -> "TrainingJobSpec":
        policy = self.run_policy.failure_policy
        never = all(
            (replica_spec.template["spec"].get("restartPolicy") or "Never") == "Never"
            for replica_spec in self.replica_specs
        )
        if policy is not None and policy.restart == "All" and not never:
            raise ValueError(RESTART_NEEDS_NEVER)
        if policy is not None and policy.on_exit_codes and not never:
            raise ValueError(EXIT_CODES_NEED_NEVER)
        return self

    @model_validator(mode="after")
    def _exit_codes_are_of_containers_that_exist(self) -> "TrainingJobSpec":
        policy = self.run_policy.failure_policy
        containers = {
            name for replica_spec in self.replica_specs for name in container_names(replica_spec.template)
        }
        for index, exit_rule in enumerate(policy.on_exit_codes if policy is not None else ()):
            if exit_rule.container_name is not None and exit_rule.container_name not in containers:
                raise ValueError(
                    f"runPolicy.failurePolicy.onExitCodes[{index}].containerName: no template has a container "
                    f"{exit_rule.container_name!r}: name one of {', '.join(sorted(containers))}, or leave it out"
                )
        return self

    @model_validator(mode="after")
    def _one_priority_class(self) -> "TrainingJobSpec":
        named = self.scheduling.priority_class_name
        classes = {
            replica_spec.template["spec"].get("priorityClassName") or named or ""
            for replica_spec in self.replica_specs
        }
        if len(classes) > 1 or (named and classes != {named}):
            raise ValueError(PRIORITY_CLASSES_DIFFER)
        return self


class TrainingJob(Model):
    """A distributed training run whose pods are placed on the nodes that hold its data."""

    spec: Annotated[TrainingJobSpec, Field(json_schema_extra=SPEC_RULES)]
    """What runs, on which data."""
    status: Annotated[TrainingJobStatus | None, OnceSeen] = None
    """How far the job is, and where it runs; written by the operator."""
