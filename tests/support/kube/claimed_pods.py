"""Pods that mount a claim, or nearly do: which of them are to be placed by their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.kube import Object
from tests.support.kube.objects import gpu_pod

CLAIM = "images"


@dataclass(frozen=True, kw_only=True)
class NewPod:
    """A pod as it is about to be created, and whether the scheduler of TDCS shall have it."""

    ours: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def build(self, *, name: str, namespace: str) -> Object:
        pod = gpu_pod(name=name, namespace=namespace, labels=self.labels, spec=self.spec)
        if self.annotations:
            pod["metadata"]["annotations"] = dict(self.annotations)
        if "schedulerName" not in self.spec:
            del pod["spec"]["schedulerName"]
        return pod


def volumes(*claims: str) -> list[Object]:
    """Volumes of a pod that mounts these claims."""
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for number, claim in enumerate(claims)
    ]


MOUNTED = {"volumes": volumes(CLAIM)}

NEW_PODS: Mapping[str, NewPod] = {
    "mounts-the-claim": NewPod(ours=True, spec=MOUNTED),
    "mounts-it-next-to-others": NewPod(
        ours=True, spec={"volumes": [{"name": "tmp", "emptyDir": {}}, *volumes("checkpoints", CLAIM)]}
    ),
    "names-the-default-scheduler": NewPod(ours=True, spec={**MOUNTED, "schedulerName": "default-scheduler"}),
    "is-labelled-true": NewPod(ours=True, labels={"tdcs.io/place-by-data": "true"}, spec=MOUNTED),
    "is-opted-out": NewPod(ours=False, labels={"tdcs.io/place-by-data": "false"}, spec=MOUNTED),
    "names-another-scheduler": NewPod(ours=False, spec={**MOUNTED, "schedulerName": "volcano"}),
    "mounts-another-claim": NewPod(ours=False, spec={"volumes": volumes("checkpoints")}),
    "mounts-no-claim": NewPod(ours=False, spec={"volumes": [{"name": "tmp", "emptyDir": {}}]}),
    "mounts-nothing": NewPod(ours=False),
    "asks-for-affinity": NewPod(ours=False, annotations={"tdcs.io/data-affinity": "preferred"}, spec=MOUNTED),
    "has-a-node": NewPod(ours=False, spec={**MOUNTED, "nodeName": "somewhere"}),
    "is-of-a-training-job": NewPod(ours=False, labels={"tdcs.io/training-job": "train"}, spec=MOUNTED),
}
