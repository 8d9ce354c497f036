"""Pods that mount a Dataset's claim and name no scheduler, and what of the chart gives them that of TDCS."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from tests.controlplane.extender_world import CRDS, SCHEDULER, Extender, start_extender, start_scheduler
from tests.support.certificates import TestAuthority
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube, Object
from tests.support.kube.claimed_pods import MOUNTED
from tests.support.kube.objects import gpu_pod
from tests.support.programs.ports import free_ports

from tdcs.trust.roles import Role
from tdcs_local import programs

CHART = CRDS.parent / "charts" / "tdcs"


def unnamed(name: str, *, namespace: str, set_: str, **spec: object) -> Object:
    """A pod that mounts the claim and names no scheduler, unless `spec` does."""
    pod = gpu_pod(name=name, namespace=namespace, labels={"set": set_}, spec={**MOUNTED, **spec})
    if "schedulerName" not in spec:
        del pod["spec"]["schedulerName"]
    return pod


def job_of(pod: Object, *, pods: int) -> Object:
    """A Job of such pods."""
    metadata, spec = pod["metadata"], {**pod["spec"], "restartPolicy": "Never"}
    template = {"metadata": {"labels": metadata["labels"]}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{metadata['name']}-job", "namespace": metadata["namespace"]},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def admission(
    kube: Kube, *, namespace: str, values: Sequence[str], url: str = "", authority: bytes = b""
) -> list[Object]:
    """What the chart makes for the admission of pods, for this namespace alone.

    Args:
        url: where the webhook is.
        authority: certificate that signed the webhook's.
    """
    words = [word for value in values for word in ("--set", value)]
    rendered = subprocess.run(
        [
            *(programs.ensure("helm") / "helm", "template", f"tdcs-{namespace[-6:]}", CHART),
            *("--namespace", namespace, "--show-only", "templates/place-by-data.yaml"),
            *("--api-versions", "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy", *words),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    objects: list[Object] = [obj for obj in yaml.safe_load_all(rendered) if obj]
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    for obj in objects:
        for hook in obj.get("webhooks", ()):
            # No pod network leads to the extender's process here.
            hook["clientConfig"] = {"url": url, "caBundle": base64.b64encode(authority).decode()}
            hook["namespaceSelector"] = only
        kube.apply(obj)
    return objects


def held_back(pod: Object) -> Object:
    """The pod with a scheduling gate, unless it has a node already."""
    if "nodeName" not in pod["spec"]:
        pod["spec"]["schedulingGates"] = [{"name": "tests.tdcs.io/hold"}]
    return pod


def gets_our_scheduler(kube: Kube, *, namespace: str, tries: Iterator[int]) -> bool:
    pod = held_back(unnamed(f"try-{next(tries)}", namespace=namespace, set_="tried"))
    return bool(kube.create(pod)["spec"]["schedulerName"] == SCHEDULER)


@contextmanager
def removed_at_the_end(kube: Kube, objects: Sequence[Object]) -> Iterator[None]:
    try:
        yield
    finally:
        for obj in objects:
            if "namespace" not in obj["metadata"]:
                kube.delete(obj["kind"], obj["metadata"]["name"])


@contextmanager
def extender_with_webhook(plane: ControlPlane, *, namespace: str) -> Iterator[Extender]:
    """The extender as the webhook for the pods of a namespace, and its scheduler."""
    (port,) = free_ports(1)
    plane.kube.install_crds(CRDS)
    authority = TestAuthority()
    objects = admission(
        plane.kube,
        namespace=namespace,
        values=["placeByData=Webhook"],
        url=f"https://127.0.0.1:{port}/pods",
        authority=authority.pair.certificate,
    )
    with removed_at_the_end(plane.kube, objects), TemporaryDirectory(prefix="tdcs-webhook-") as folder:
        certificate = authority.folder(Path(folder), Role.OPERATOR)
        options = [f"--webhook-port={port}", f"--webhook-certificate={certificate}"]
        extender = start_extender(plane, options=options)
        start_scheduler(plane, extender.url)
        yield extender
