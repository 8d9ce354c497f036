"""Mounts and programs of a job's pod templates that cannot work together with its datasets.

A dataset's volume is read-only, and hides what the image, or another volume, has at its path. A container runtime makes
the folder that it mounts something at: in a read-only volume it cannot, and the container never starts ("read-only file
system"), which nobody sees before the pods are there.
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
    """What of the templates cannot work together with the datasets, and what to do; empty when all can.

    Said of jobs that have no pods yet: one that runs works, whatever is said here.
    """
    for each in spec.replica_specs:
        pod = each.template["spec"]
        where = f"replicaSpecs[{each.name}].template.spec"
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
        given = str(mount.get("mountPath") or "")
        other = posixpath.normpath(f"/{given.lstrip('/')}")
        what = f".volumeMounts[{mount.get('name')}]: {given} "
        if other == path and given != use.mount_path:
            return f"{what}is the path of {dataset}, and one would hide the other: give it another path"
        if _lies_in(other, path):
            return (
                f"{what}lies in {dataset}, which is read-only, so that nothing can be mounted in it: mount the two "
                "side by side"
            )
        if _lies_in(path, other) and (mount.get("readOnly") or mount.get("name") in read_only):
            return (
                f"{what}is read-only, so that {dataset} cannot be mounted in it: mount the two side by side, or that "
                "one writable"
            )
    program = next(iter(container.get("command") or ()), "")
    if program.startswith("/") and _lies_in(posixpath.normpath(program), path):
        return (
            f".command: {program} lies in {dataset}, which hides what the image has there, and files of datasets are "
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


def _lies_in(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
