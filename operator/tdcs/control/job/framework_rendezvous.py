"""How the pods of a job find each other: the environment that each framework reads.

The same text goes into all pods of a role, because one pod template serves them all. What differs between them, a
pod's own number, comes from the annotation in which the Job controller puts it.
"""

import json
from collections.abc import Mapping

from tdcs.api import names
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import pod_requests

TENSORFLOW_PORT = 2222
"""Port of TensorFlow's own servers, by its convention."""

PYTORCH_PORT = 29500
"""Port of PyTorch's master, torchrun's default."""

LONGEST_VARIABLE = 128 * 1024
"""Bytes of one variable with its name that Linux passes to a program (MAX_ARG_STRLEN, 32 pages)."""

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The variable that the Job controller gives to pods; declared here first, so that others can refer to it."""

TENSORFLOW_TASKS: Mapping[Role, str] = {"Chief": "chief", "Worker": "worker", "PS": "ps"}
"""The role's word in TF_CONFIG."""


def port_of(framework: str) -> int:
    """The port at which the pods of a framework meet; the Service names it."""
    return PYTORCH_PORT if framework == "PyTorch" else TENSORFLOW_PORT


def host(*, job: str, namespace: str, role: Role, index: int) -> str:
    return f"{names.role_job_name(job=job, role=role)}-{index}.{job}.{namespace}.svc"


def environment(*, job: str, namespace: str, spec: TrainingJobSpec, role: Role) -> list[Object]:
    """The variables of a role's pods, in an order in which each only refers to earlier ones."""
    match spec.framework:
        case "TensorFlow" if role in TENSORFLOW_TASKS:
            return [
                _own_index(INDEX_VARIABLE),
                _value("TF_CONFIG", tf_config(job=job, namespace=namespace, spec=spec, role=role)),
            ]
        case "PyTorch":
            servers = _parameter_servers(job=job, namespace=namespace, spec=spec)
            # A server is no member of the workers' group: it gets no rank in it.
            return servers if role == "PS" else [*_pytorch(job=job, namespace=namespace, spec=spec), *servers]
        case "Horovod":
            return _horovod(job=job, namespace=namespace, spec=spec)
        case _:
            return []


def too_long(*, job: str, namespace: str, spec: TrainingJobSpec) -> str:
    """Why no program could be started with the environment of these pods; empty when it can."""
    for role in spec.by_role():
        for variable in environment(job=job, namespace=namespace, spec=spec, role=role):
            size = len(variable["name"]) + len("=") + len(variable.get("value", "")) + len("\0")
            if size > LONGEST_VARIABLE:
                return (
                    f"the variable {variable['name']}, which lists every pod of the job, would have {size} bytes, and "
                    f"Linux passes at most {LONGEST_VARIABLE} to a program: ask for fewer replicas, or give the job "
                    "or its namespace a shorter name"
                )
    return ""


def tf_config(*, job: str, namespace: str, spec: TrainingJobSpec, role: Role) -> str:
    """TF_CONFIG as TensorFlow defines it, the same text for all pods of a role.

    The pod's own index is written as ``$(JOB_COMPLETION_INDEX)``, which kubelet replaces; it stands bare, so
    that the result is a JSON number.
    """
    listed = {
        word: [
            f"{host(job=job, namespace=namespace, role=task_role, index=index)}:{TENSORFLOW_PORT}"
            for index in range(spec.by_role()[task_role].replicas)
        ]
        for task_role, word in TENSORFLOW_TASKS.items()
        if task_role in spec.by_role()
    }
    cluster = json.dumps(listed, separators=(",", ":"))
    task = TENSORFLOW_TASKS[role]
    return f'{{"cluster":{cluster},"task":{{"type":"{task}","index":$({INDEX_VARIABLE})}}}}'


def _pytorch(*, job: str, namespace: str, spec: TrainingJobSpec) -> list[Object]:
    """What ``torch.distributed.init_process_group("env://")`` reads, and torchrun's own variables (PET_).

    A job that may change its size has no rank and world size of its own: torchrun agrees on them at a meeting
    point on worker 0, each time the number of workers changes.
    """
    worker = spec.worker
    master = host(job=job, namespace=namespace, role="Worker", index=0)
    limits = pod_requests(worker.template["spec"])
    processes = str(max(limits.get(names.GPU_RESOURCE, 0), 1))
    if spec.elastic is not None:
        return [
            _value("PET_NNODES", f"{spec.elastic.min_replicas}:{spec.elastic.max_replicas}"),
            _value("PET_NPROC_PER_NODE", processes),
            _value("PET_RDZV_BACKEND", "c10d"),
            _value("PET_RDZV_ENDPOINT", f"{master}:{PYTORCH_PORT}"),
            _value("PET_RDZV_ID", job),
        ]
    return [
        _value("MASTER_ADDR", master),
        _value("MASTER_PORT", str(PYTORCH_PORT)),
        _value("WORLD_SIZE", str(worker.replicas)),
        _own_index("RANK"),
        _value("PET_NNODES", str(worker.replicas)),
        _value("PET_NPROC_PER_NODE", processes),
        _own_index("PET_NODE_RANK"),
        _value("PET_MASTER_ADDR", master),
        _value("PET_MASTER_PORT", str(PYTORCH_PORT)),
    ]


def _parameter_servers(*, job: str, namespace: str, spec: TrainingJobSpec) -> list[Object]:
    """Where the parameter servers of a PyTorch job listen; its own number a server has from its completion index."""
    servers = spec.by_role().get("PS")
    if servers is None:
        return []
    hosts = [host(job=job, namespace=namespace, role="PS", index=index) for index in range(servers.replicas)]
    return [_value("TDCS_PS_HOSTS", ",".join(f"{server}:{PYTORCH_PORT}" for server in hosts))]


def _horovod(*, job: str, namespace: str, spec: TrainingJobSpec) -> list[Object]:
    """The workers as ``horovodrun -H`` and Open MPI's ``mpirun -H`` take them, and their number for ``-np``.

    How the launcher starts processes in the workers (ssh, an agent) is the image's business: no keys are made and
    no ssh server is assumed.
    """
    worker = spec.worker
    slots = max(pod_requests(worker.template["spec"]).get(names.GPU_RESOURCE, 0), 1)
    hosts = [
        host(job=job, namespace=namespace, role="Worker", index=index) for index in range(worker.replicas)
    ]
    return [
        _value("TDCS_WORKER_HOSTS", ",".join(f"{worker_host}:{slots}" for worker_host in hosts)),
        _value("TDCS_WORKER_SLOTS", str(slots * worker.replicas)),
    ]


def _value(name: str, value: str) -> Object:
    return {"name": name, "value": value}


def _own_index(name: str) -> Object:
    path = f"metadata.annotations['{names.ANNOTATION_COMPLETION_INDEX}']"
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
