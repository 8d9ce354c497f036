"""Installs TDCS on the local cluster, as a user would: with Helm, from this checkout's chart and images."""

from collections.abc import Mapping

from tdcs_local import products
from tdcs_local.kubectl import Kubectl, Object, condition
from tdcs_local.paths import CHECKOUT, LOCAL, log_file
from tdcs_local.shell import capture, run
from tdcs_local.steps import Reporter

RELEASE = "tdcs"
NAMESPACE = "tdcs-system"
CACHE_CLUSTER = "default"
IMAGES = ("tdcs", "alluxio")
"""The images that the chart names."""


def install(
    *,
    reporter: Reporter,
    kubectl: Kubectl,
    tags: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
) -> None:
    """Install or upgrade the chart with images of these content tags and wait until the cache is ready.

    ``tags`` maps an image name ("tdcs", "alluxio") to the tag that was loaded into the nodes. Installing
    again with the same tags changes nothing. ``settings`` are further chart values, as for ``helm --set``.
    """
    helm = products.ensure("helm", reporter=reporter) / "helm"
    values = {"image.tag": tags["tdcs"], "alluxio.image.tag": tags["alluxio"], **(settings or {})}
    with reporter.step("install the chart"):
        run(
            [
                *(helm, "upgrade", "--install", RELEASE, CHECKOUT / "charts" / "tdcs"),
                *("--kubeconfig", kubectl.kubeconfig, "--namespace", NAMESPACE, "--create-namespace"),
                *("--values", LOCAL / "values.yaml", "--wait", "--timeout", "5m"),
                *(word for name, value in values.items() for word in ("--set", f"{name}={value}")),
            ],
            what="installing the chart charts/tdcs failed",
            log=log_file("helm"),
            remedy=f"look at the pods: kubectl --kubeconfig {kubectl.kubeconfig} -n {NAMESPACE} get pods",
        )
    with reporter.step("cache cluster ready") as step:
        kubectl.wait(
            lambda: _not_ready(kubectl.get("cacheclusters.tdcs.io", CACHE_CLUSTER)),
            what=f"CacheCluster {CACHE_CLUSTER} did not become ready",
            seconds=300,
            step=step,
            explain=lambda: kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide"),
        )
        found = kubectl.get("cacheclusters.tdcs.io", CACHE_CLUSTER) or {}
        step.result = f"{found['status']['readyReplicas']} workers"


def helm_test(*, kubectl: Kubectl) -> str:
    """Run `helm test` on the release; gives what helm said, with the log of the test's pod."""
    helm = products.ensure("helm") / "helm"
    return capture(
        [
            *(helm, "test", RELEASE, "--logs", "--timeout", "3m"),
            *("--kubeconfig", kubectl.kubeconfig, "--namespace", NAMESPACE),
        ],
        what="helm test failed",
        timeout=200,
    )


def uninstall(*, reporter: Reporter, kubectl: Kubectl) -> None:
    """Remove the release; the custom resources and their data go by the chart's own rules."""
    helm = products.ensure("helm", reporter=reporter) / "helm"
    with reporter.step("uninstall the chart"):
        run(
            [
                *(helm, "uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", "5m"),
                *("--kubeconfig", kubectl.kubeconfig, "--namespace", NAMESPACE),
            ],
            what="uninstalling the chart failed",
            log=log_file("helm"),
        )


def _not_ready(cluster: Object | None) -> str | None:
    if cluster is None:
        return f"there is no CacheCluster {CACHE_CLUSTER} yet"
    ready = condition(cluster, "Ready")
    current = ready.get("observedGeneration") == cluster["metadata"]["generation"]
    if ready.get("status") == "True" and current:
        return None
    return str(ready.get("message", "the operator has not looked at it yet"))
