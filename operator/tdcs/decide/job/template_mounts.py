"""Mounts and programs in a job's pod templates that conflict with its datasets.

A dataset's volume is read-only, and hides what the image or another volume has at its path. A container runtime creates
the folder of each mount. It cannot do so in a read-only volume: the container never starts ("read-only file system"),
which shows only once the pods exist.
"""

import posixpath
from collections.abc import Iterator
from typing import Any, Final

from tdcs.api.trainingjob import DatasetUse, TrainingJobSpec

_READ_ONLY: Final = frozenset({"configMap", "secret", "downwardAPI", "projected", "image"})
"""Kinds of volumes that kubelet gives read-only, whatever the mount says."""

USER_NAMESPACE: Final = (
    "hostUsers: false cannot be used together with datasets: their volumes are overlays, which no kernel maps into the "
    "user namespace of a pod, so that its containers would not start (MOUNT_ATTR_IDMAP: invalid argument). Leave "
    "hostUsers out and run as another user instead (securityContext.runAsNonRoot), or copy the data to a volume of the "
    "pod's own by another pod"
)


def mount_problem(spec: TrainingJobSpec) -> str:
    """The first conflict between the templates and the datasets, and what to do; empty when there is none.

    Only for jobs that have no pods yet: one that runs has no such conflict.
    """
    for replica_spec in spec.replica_specs:
        pod = replica_spec.template["spec"]
        where = f"replicaSpecs[{replica_spec.name}].template.spec"
        if spec.datasets and pod.get("hostUsers") is False:
            return f"{where}: {USER_NAMESPACE}"
        read_only = {volume.get("name") for volume in pod.get("volumes") or () if _is_read_only(volume)}
        for kind, container in _containers(pod):
            field = f"{where}.{kind}[{container.get('name')}]"
            for use in spec.datasets:
                problem = _problem(container, use, read_only=read_only)
                if problem:
                    return f"{field}{problem}"
    return ""


def _problem(container: dict[str, Any], use: DatasetUse, *, read_only: set[Any]) -> str:
    path = posixpath.normpath(use.mount_path)
    dataset = f"the dataset {use.name} at {use.mount_path}"
    for mount in container.get("volumeMounts") or ():
        mount_path = str(mount.get("mountPath") or "")
        normal_path = posixpath.normpath(f"/{mount_path.lstrip('/')}")
        prefix = f".volumeMounts[{mount.get('name')}]: {mount_path} "
        if normal_path == path and mount_path != use.mount_path:
            return f"{prefix}is the path of {dataset}, and one would hide the other: give it another path"
        if _is_in(normal_path, path):
            return (
                f"{prefix}is in {dataset}, which is read-only, so that nothing can be mounted in it: mount the two "
                "side by side"
            )
        if _is_in(path, normal_path) and (mount.get("readOnly") or mount.get("name") in read_only):
            return (
                f"{prefix}is read-only, so that {dataset} cannot be mounted in it: mount the two side by side, or that "
                "one writable"
            )
    program = next(iter(container.get("command") or ()), "")
    if program.startswith("/") and _is_in(posixpath.normpath(program), path):
        return (
            f".command: {program} is in {dataset}, which hides what the image has there, and files of datasets are "
            "not executable: mount it elsewhere, or start an interpreter of the image with the file"
        )
    return ""


def _containers(pod: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("initContainers", "containers"):
        for container in pod.get(kind) or ():
            yield kind, container


def _is_read_only(volume: dict[str, Any]) -> bool:
    claimed = (volume.get("persistentVolumeClaim") or {}).get("readOnly")
    return bool(claimed) or any(volume.get(kind) is not None for kind in _READ_ONLY)


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
