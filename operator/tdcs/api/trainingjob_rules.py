"""Rules of TrainingJobs that the API server checks: of what values fit together, and of what may change."""

from typing import Final

from tdcs.api.base import rule, rules
from tdcs.api.readers import READERS_PATTERN

NAME_LIMIT = 50
"""The longest name whose pods' host names, such as NAME-launcher-0, still fit a DNS label of 63 characters."""

FROZEN = "cannot be changed once created: delete the TrainingJob and create it again"

_SYSTEM_FOLDERS = frozenset(
    {
        *(
            "/bin",
            "/boot",
            "/dev",
            "/etc",
            "/lib",
            "/lib32",
            "/lib64",
            "/libx32",
            "/proc",
            "/run",
            "/sbin",
            "/sys",
        ),
        *(
            "/usr",
            "/usr/bin",
            "/usr/lib",
            "/usr/lib32",
            "/usr/lib64",
            "/usr/libexec",
            "/usr/sbin",
            "/usr/share",
        ),
        *("/usr/local", "/usr/local/bin", "/usr/local/lib", "/var", "/var/lib", "/var/run"),
        *("/home", "/opt", "/opt/conda", "/root", "/tmp", "/usr/src", "/var/cache", "/var/log", "/var/tmp"),  # noqa: S108 - in containers
        *(
            "/var/run/secrets",
            "/var/run/secrets/kubernetes.io",
            "/var/run/secrets/kubernetes.io/serviceaccount",
        ),
        *("/run/secrets", "/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io/serviceaccount"),
    }
)
"""Where images have their programs, and where kubelet and container runtimes mount what every container needs."""

_BELOW_SYSTEM: Final = (
    *(
        "/bin/",
        "/boot/",
        "/dev/",
        "/etc/",
        "/lib/",
        "/lib32/",
        "/lib64/",
        "/libx32/",
        "/proc/",
        "/sbin/",
        "/sys/",
    ),
    *("/usr/bin/", "/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/usr/libexec/", "/usr/sbin/"),
    *("/usr/local/bin/", "/usr/local/lib/", "/opt/conda/", "/run/secrets/", "/var/run/secrets/"),
)
"""Folders below which nobody has data either."""

NODE_FOLDER_RULE = rule(
    f"!(self in {sorted(_SYSTEM_FOLDERS - {'/run', '/tmp', '/var/tmp'})}) && "  # noqa: S108 - on nodes
    "!['/bin/', '/boot/', '/etc/', '/lib/', '/proc/', '/sbin/', '/sys/', '/usr/bin/', '/var/lib/kubelet/', "
    "'/var/run/'].exists(folder, (self + '/').startsWith(folder))",
    "belongs to the node's system: name a folder of its own, such as /var/lib/tdcs/cache/NAME",
)
"""Rule of a folder on the nodes in which a cache has its data."""

MOUNT_RULES = rules(
    rule(
        "self.startsWith('/') && size(self) > 1", "must be an absolute path in the container, such as /data"
    ),
    rule("!self.contains(':')", "must not contain ':'"),
    rule(
        "!self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') && !self.endsWith('/.') && "
        "!self.contains('//')",
        "must be a plain path, without '.', '..' and '//'",
    ),
    rule("size(self) < 2 || !self.endsWith('/')", "must not end with '/'"),
    rule(
        r"self.matches('^[^\\pC]*[^\\pC\\pZ]$')",
        "must have no line breaks or other control characters, and no blank at its end",
    ),
    rule(
        f"!(self in {sorted(_SYSTEM_FOLDERS)}) && "
        f"!{sorted(_BELOW_SYSTEM)}.exists(folder, self.startsWith(folder))",
        "would hide what the system or the image's program has there, and is read-only: choose a path such as /data",
    ),
)


def _frozen(path: str) -> dict[str, str]:
    """A rule that keeps an optional field of `self` as it was."""
    unchanged = f"(!has(self.{path}) || self.{path} == oldSelf.{path})"
    return rule(f"has(self.{path}) == has(oldSelf.{path}) && {unchanged}", FROZEN, field=f".{path}")


AT_LEAST_ONE = rules(rule("self >= 1", "must be at least 1: a job needs a pod"))


PRIORITY_CLASSES_DIFFER = (
    "the priorityClassName of a template differs from scheduling.priorityClassName, or from that of another role: the "
    "job has one place in the queue, so set scheduling.priorityClassName and leave it out of the templates"
)


RESTART_NEEDS_NEVER = (
    "failurePolicy.restart All needs restartPolicy Never in all templates, which is the default: with OnFailure the "
    "kubelet restarts a container in its pod"
)
EXIT_CODES_NEED_NEVER = (
    "failurePolicy.onExitCodes needs restartPolicy Never in all templates, which is the default"
)
NO_WORKER = "a job needs workers: add an item with the name Worker"
REPLICAS_OF_WORKERS = (
    "the number of workers is spec.workers, which kubectl scale can set: remove replicas from the item Worker"
)
READERS_NEED_EXTENDER = (
    "needs scheduling.mode Extender: preferences of mode Affinity are the same for all workers"
)
READERS_BEYOND_WORKERS = (
    "names a worker that the job may not have: indices go from 0 to the number of workers less 1, of elastic jobs to "
    "elastic.minReplicas less 1"
)
"""Both behind `readers_of` a dataset."""

_OF_WORKERS = (
    f"(!one.readers.matches('{READERS_PATTERN}') || "
    "one.readers.split(',').all(part, int(part.split('-')[size(part.split('-')) - 1]) < "
    "(has(self.elastic) ? self.elastic.minReplicas : self.workers)))"
)
"""CEL: of the readers of `one` dataset; of those that are no list of indices another rule speaks."""


MOST_DATASETS: Final = 16
"""Of a job."""


def readers_of(name: str) -> str:
    return f"readers of dataset {name}"


def _readers(condition: str) -> str:
    """CEL: the same without the readers, of the first dataset of which this holds. The API server bounds what an
    expression may cost by the longest values, and knows these of items that are named by their index alone."""
    chain = "''"
    for index in reversed(range(MOST_DATASETS)):
        item = f"self.datasets[{index}]"
        chain = f"size(self.datasets) > {index} && {condition.replace('one.', item + '.')} ? {item}.name : {chain}"
    return f"'readers of dataset ' + ({chain})"


def _has(role: str) -> str:
    """CEL: the job has a role."""
    return f"self.replicaSpecs.exists(one, one.name == '{role}')"


def _single(role: str) -> dict[str, str]:
    return rule(
        f"!self.replicaSpecs.exists(one, one.name == '{role}' && has(one.replicas) && one.replicas != 1)",
        f"the {role} is one pod: set its replicas to 1",
        field=".replicaSpecs",
    )


def _class_of(item: str) -> str:
    """CEL: the PriorityClass of the pods of an item of replicaSpecs."""
    spec = f"{item}.template.spec"
    named = "(has(self.scheduling.priorityClassName) ? self.scheduling.priorityClassName : '')"
    return f"(has({spec}.priorityClassName) && {spec}.priorityClassName != '' ? {spec}.priorityClassName : {named})"


def _failure_policy(field: str, *, of: str = "self") -> str:
    """CEL: the job says this of what is restarted."""
    return f"(has({of}.runPolicy.failurePolicy) && has({of}.runPolicy.failurePolicy.{field}))"


_ALL_NEVER = (
    "self.replicaSpecs.all(one, !has(one.template.spec.restartPolicy) || "
    "one.template.spec.restartPolicy == 'Never')"
)


SPEC_RULES = rules(
    rule(
        "!has(self.scheduling.priorityClassName) || "
        f"self.replicaSpecs.all(one, {_class_of('one')} == self.scheduling.priorityClassName)",
        PRIORITY_CLASSES_DIFFER,
        field=".replicaSpecs",
    ),
    rule(
        f"self.replicaSpecs.all(one, {_class_of('one')} == {_class_of('self.replicaSpecs[0]')})",
        PRIORITY_CLASSES_DIFFER,
        field=".replicaSpecs",
    ),
    rule(
        "!has(self.datasets) || size(self.datasets) == 0 || "
        "self.replicaSpecs.all(one, !has(one.template.spec.hostUsers) || one.template.spec.hostUsers)",
        "hostUsers: false cannot be used together with datasets, as no kernel maps their volumes for it: "
        "leave it out, and run as another user (securityContext.runAsNonRoot)",
        field=".replicaSpecs",
    ),
    rule(_has("Worker"), NO_WORKER, field=".replicaSpecs"),
    rule(
        "!self.replicaSpecs.exists(one, one.name == 'Worker' && has(one.replicas))",
        REPLICAS_OF_WORKERS,
        field=".replicaSpecs",
    ),
    rule(
        f"self.framework != 'Horovod' || {_has('Launcher')}",
        "Horovod needs a Launcher, whose pod runs horovodrun: add an item with the name Launcher, or set framework to "
        "PyTorch, TensorFlow or None",
        field=".replicaSpecs",
    ),
    rule(
        f"self.framework != 'Horovod' || !{_has('PS')}",
        "Horovod has no role PS: remove it, or set framework to TensorFlow or PyTorch",
        field=".replicaSpecs",
    ),
    rule(
        f"self.framework == 'TensorFlow' || self.framework == 'None' || !{_has('Chief')}",
        "only TensorFlow has the role Chief: remove it (worker 0 is PyTorch's master), or set framework to "
        "TensorFlow",
        field=".replicaSpecs",
    ),
    rule(
        f"self.framework == 'Horovod' || self.framework == 'None' || !{_has('Launcher')}",
        "only Horovod has the role Launcher: remove it, or set framework to Horovod",
        field=".replicaSpecs",
    ),
    rule(
        f"self.framework != 'TensorFlow' || !{_has('PS')} || {_has('Chief')}",
        "parameter servers need a Chief: it drives the workers, and the job ends as it ends",
        field=".replicaSpecs",
    ),
    _single("Chief"),
    _single("Launcher"),
    rule(
        "self.framework != 'TensorFlow' || !has(self.elastic)",
        "TensorFlow's workers are listed when the job starts, their number cannot change: remove elastic",
        field=".elastic",
    ),
    rule(
        "self.framework != 'Horovod' || !has(self.elastic)",
        "Horovod's launcher gets the list of its workers when it starts, so their number cannot change: remove elastic",
        field=".elastic",
    ),
    rule(
        "!has(self.elastic) || self.elastic.minReplicas <= self.elastic.maxReplicas",
        "minReplicas must not be above maxReplicas",
        field=".elastic",
    ),
    rule(
        "!has(self.elastic) || self.elastic.minReplicas > self.elastic.maxReplicas || "
        "(self.workers >= self.elastic.minReplicas && self.workers <= self.elastic.maxReplicas)",
        "the number of workers must be between elastic.minReplicas and elastic.maxReplicas",
        field=".workers",
    ),
    rule(
        "self.scheduling.mode == 'Extender' || !has(self.datasets) || !self.datasets.exists(one, has(one.readers))",
        READERS_NEED_EXTENDER,
        field=".datasets",
        subject=_readers("has(one.readers)"),
    ),
    rule(
        f"!has(self.datasets) || self.datasets.all(one, !has(one.readers) || {_OF_WORKERS})",
        READERS_BEYOND_WORKERS,
        field=".datasets",
        subject=_readers(f"has(one.readers) && !({_OF_WORKERS})"),
    ),
    rule("self.framework == oldSelf.framework", FROZEN, field=".framework"),
    _frozen("elastic"),
    rule(
        f"!{_failure_policy('restart')} || {_ALL_NEVER} || self.runPolicy.failurePolicy.restart != 'All'",
        RESTART_NEEDS_NEVER,
        field=".runPolicy.failurePolicy",
    ),
    rule(
        f"!{_failure_policy('onExitCodes')} || {_ALL_NEVER} || size(self.runPolicy.failurePolicy.onExitCodes) == 0",
        EXIT_CODES_NEED_NEVER,
        field=".runPolicy.failurePolicy",
    ),
)

ROLE_RULES = rules(
    rule(
        "size(self) == size(oldSelf) && self.all(one, oldSelf.exists(old, old.name == one.name))",
        FROZEN,
    )
)


_ADMITTED = (
    "has(oldSelf.status) && has(oldSelf.status.conditions) && "
    "oldSelf.status.conditions.exists(one, one.type == 'Admitted' && one.status == 'True')"
)
"""CEL: the pods of the job may exist."""

RUNS = (
    "cannot be changed while the job is admitted: suspend it (spec.runPolicy.suspend) and wait until its state is "
    "Suspended, or delete it and create it again"
)


def _while_waiting(path: str, *, optional: bool = False, unless: str = "false") -> dict[str, str]:
    """A rule on the whole object: a field may change only as long as the job's pods may not exist."""
    owner, _, name = path.rpartition(".")
    after, before = f"self.spec.{path}", f"oldSelf.spec.{path}"
    equality = f"{after} == {before}"
    if optional:
        presence = [_has_path(f"{root}.spec", owner, name) for root in ("self", "oldSelf")]
        equality = f"{presence[0]} == {presence[1]} && (!{presence[0]} || {equality})"
    return rule(f"!({_ADMITTED}) || {unless} || ({equality})", RUNS, field=f".spec.{path}")


def _has_path(root: str, owner: str, name: str) -> str:
    """CEL: an optional field is there, with the optional object that holds it."""
    if owner == "runPolicy.failurePolicy":
        return f"(has({root}.{owner}) && has({root}.{owner}.{name}))"
    return f"has({root}.{owner}.{name})"


_ENDS_BY = f"({_ADMITTED} && has(oldSelf.status.queue) && has(oldSelf.status.queue.endsBy))"
"""CEL: the job runs on nodes that are set aside for another one, as it is over before that can use them."""

_DEADLINE = "spec.runPolicy.activeDeadlineSeconds"

KEPT_DEADLINE = rule(
    f"!{_ENDS_BY} || !has(oldSelf.{_DEADLINE}) || "
    f"(has(self.{_DEADLINE}) && self.{_DEADLINE} <= oldSelf.{_DEADLINE})",
    "cannot be raised or removed: the job runs on nodes that are set aside for another job, because it ends in time "
    "(status.queue.endsBy); suspend it first (spec.runPolicy.suspend), and it waits for a turn that needs no end",
    field=f".{_DEADLINE}",
)

WHILE_WAITING = (
    _while_waiting("workers", unless="has(self.spec.elastic)"),
    _while_waiting("replicaSpecs"),
    _while_waiting("scheduling.mode"),
    _while_waiting("scheduling.gang"),
    _while_waiting("scheduling.priorityClassName", optional=True),
    _while_waiting("runPolicy.failurePolicy.restart", optional=True),
    _while_waiting("runPolicy.failurePolicy.onExitCodes", optional=True),
    KEPT_DEADLINE,
)
"""What may change of a job that waits or is suspended: its children are then made again. It keeps its age."""

NAME_RULE = rule(
    f"self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= {NAME_LIMIT}",
    f"metadata.name must begin with a letter and be at most {NAME_LIMIT} lower-case letters, digits and dashes, "
    "so that the pods' host names, NAME-worker-0 and on, fit 63 characters",
)
"""Rule on the whole object: the schema of metadata itself belongs to the API server."""
