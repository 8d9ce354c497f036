"""Installs TDCS on the local cluster, as a user would: with Helm, from this checkout's chart and images."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tdcs_local import programs
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object, condition
from tdcs_local.paths import CHECKOUT, LOCAL, log_file
from tdcs_local.progress import Reporter
from tdcs_local.shell import capture, run

RELEASE = "tdcs"
NAMESPACE = "tdcs-system"
CACHE_CLUSTER = "default"
CUSTOM_RESOURCES = (
    ("trainingjobs.tdcs.io", "TrainingJobs"),
    ("preloads.tdcs.io", "Preloads"),
    ("datasets.tdcs.io", "Datasets"),
    ("cacheclusters.tdcs.io", "CacheClusters"),
    ("datachecks.tdcs.io", "DataChecks"),
)
"""In the order in which they must be deleted."""

IMAGES = ("tdcs", "alluxio")
"""The images that the chart names."""

VALUES_VARIABLE = "TDCS_HELM_VALUES"
"""Names files of chart values, separated by colons, for every installation: the demo's and the tests', too."""


def values_files(*, env: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that the environment names. Raises :class:`LocalError` when one is not there."""
    files = [Path(name).expanduser().absolute() for name in env.get(VALUES_VARIABLE, "").split(":") if name]
    for file in files:
        if not file.is_file():
            raise LocalError(
                what=f"the chart cannot be installed with the values in {file}",
                why=f"there is no such file, and the environment variable {VALUES_VARIABLE} names it",
                remedy=f"name files that are there, separated by colons, or unset {VALUES_VARIABLE}",
            )
    return files


def install(
    *,
    reporter: Reporter,
    kubectl: Kubectl,
    tags: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
    values: Sequence[Path] = (),
    chart: Path = CHECKOUT / "charts" / "tdcs",
) -> None:
    """Install or upgrade the chart with images of these content tags and wait until the cache is ready.

    ``tags`` maps an image name ("tdcs", "alluxio") to the tag that was loaded into the nodes. Installing
    again with the same tags changes nothing. ``values`` are files of further chart values, after those that the
    environment names; ``settings`` are single ones, as for ``helm --set``, and win over all files.
    ``chart`` is this checkout's, or a packaged one.
    """
    files = [LOCAL / "values.yaml", *values_files(), *values]
    helm = programs.ensure("helm", reporter=reporter) / "helm"
    pinned = {"image.tag": tags["tdcs"], "alluxio.image.tag": tags["alluxio"]}
    with reporter.step("install the chart"):
        run(
            [
                *(helm, "upgrade", "--install", RELEASE, chart),
                *("--kubeconfig", kubectl.kubeconfig, "--namespace", NAMESPACE, "--create-namespace"),
                *(word for file in files for word in ("--values", file)),
                # As strings: a tag of digits alone would be a number.
                *(word for name, value in pinned.items() for word in ("--set-string", f"{name}={value}")),
                *(word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")),
                *("--wait", "--timeout", "5m"),
            ],
            what=f"installing the chart {chart} failed",
            log=log_file("helm"),
            remedy=f"look at the pods: kubectl --kubeconfig {kubectl.kubeconfig} -n {NAMESPACE} get pods; if an "
            f"earlier upgrade was cut off: {helm} rollback {RELEASE} --kubeconfig {kubectl.kubeconfig} -n {NAMESPACE}",
        )
    with reporter.step("cache cluster ready") as step:
        kubectl.wait(
            lambda: _not_ready(kubectl.get("cacheclusters.tdcs.io", CACHE_CLUSTER, namespace=NAMESPACE)),
            what=f"CacheCluster {CACHE_CLUSTER} did not become ready",
            seconds=300,
            step=step,
            explain=lambda: kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide"),
        )
        cache = kubectl.get("cacheclusters.tdcs.io", CACHE_CLUSTER, namespace=NAMESPACE) or {}
        step.result = f"{cache['status']['readyReplicas']} workers"


def helm_test(*, kubectl: Kubectl) -> str:
    """Run `helm test` on the release; gives what helm said."""
    helm = programs.ensure("helm") / "helm"
    return capture(
        [
            *(helm, "test", RELEASE, "--timeout", "5m"),
            *("--kubeconfig", kubectl.kubeconfig, "--namespace", NAMESPACE),
        ],
        what="helm test failed",
        timeout=320,
    )


def uninstall(*, reporter: Reporter, kubectl: Kubectl) -> None:
    """Remove the custom resources, so that the operator frees the nodes' disks, and then the release."""
    clear(reporter=reporter, kubectl=kubectl)
    helm = programs.ensure("helm", reporter=reporter) / "helm"
    with reporter.step("uninstall the chart"):
        run(
            [
                *(helm, "uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", "5m"),
                *("--kubeconfig", kubectl.kubeconfig, "--namespace", NAMESPACE),
            ],
            what="uninstalling the chart failed",
            log=log_file("helm"),
            remedy=f"look at kubectl --kubeconfig {kubectl.kubeconfig} get cacheclusters,datasets -A",
        )


def clear(*, reporter: Reporter, kubectl: Kubectl, seconds: float = 240) -> None:
    """Delete all objects of TDCS's kinds and wait until they are gone, and with them the data on the nodes' disks.

    Jobs go before the data they read, and the data before the caches that hold it: each waits for the next one's end.
    """
    for resource, noun in CUSTOM_RESOURCES:
        if kubectl.get("customresourcedefinitions.apiextensions.k8s.io", resource) is not None:
            _delete_all(resource, noun, reporter=reporter, kubectl=kubectl, seconds=seconds)


def _delete_all(resource: str, noun: str, *, reporter: Reporter, kubectl: Kubectl, seconds: float) -> None:
    places = [_place(thing) for thing in kubectl.list(resource)]
    if not places:
        return
    with reporter.step(f"delete {noun}") as step:
        for namespace, name in places:
            scope = ("-n", namespace) if namespace else ()
            kubectl("delete", resource, name, *scope, "--ignore-not-found", "--wait=false")
        kubectl.wait(
            lambda: _left(kubectl.list(resource)),
            what=f"{noun} are still being deleted",
            seconds=seconds,
            step=step,
            explain=lambda: kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide"),
        )
        step.result = ", ".join("/".join(filter(None, place)) for place in places[:5])


def _place(thing: Object) -> tuple[str, str]:
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def _left(things: Sequence[Object]) -> str | None:
    """What the first of the objects that are left waits for; None when there is none."""
    if not things:
        return None
    message = condition(things[0], "Ready").get("message", "the operator has not looked at it")
    return f"{'/'.join(filter(None, _place(things[0])))}: {message}"


def _not_ready(cluster: Object | None) -> str | None:
    if cluster is None:
        return f"there is no CacheCluster {CACHE_CLUSTER} yet"
    ready = condition(cluster, "Ready")
    current = ready.get("observedGeneration") == cluster["metadata"]["generation"]
    if ready.get("status") == "True" and current:
        return None
    return str(ready.get("message", "the operator has not looked at it yet"))
