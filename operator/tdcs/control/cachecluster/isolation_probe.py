"""Whether strangers can connect to a cache: a pod that no NetworkPolicy admits tries, and the answer is a condition."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.control.cachecluster import pod_security
from tdcs.control.cachecluster.blueprint import Blueprint, metadata_of
from tdcs.control.context import Context
from tdcs.kube.apply import belongs, digest_of
from tdcs.kube.errors import ForbiddenError, InvalidError
from tdcs.model.humanize import counted
from tdcs.model.kube_objects import Object, job_ending
from tdcs.model.kube_resources import JOBS, PODS

COMPONENT: Final = "network-probe"
CONTROL: Final = "kubernetes.default.svc:443"
"""What every pod reaches that may send at all: without it, to reach nothing proves nothing."""
REPORT_FILE: Final = "/dev/termination-log"
PERIOD_SECONDS: Final = 3600.0
DEADLINE_SECONDS: Final = 120
KEPT_SECONDS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What a probe found. Targets are given as HOST:PORT.

    Attributes:
        control: whether it reached what every pod reaches.
        closed: targets that took none.
        unnamed: targets of which the host has no address.
    """

    control: bool
    reached: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def render(self) -> str:
        return json.dumps(asdict(self))


def parse_report(text: str) -> ProbeReport | None:
    """A report from its text; None for anything else."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    if not isinstance(answer, dict) or answer.keys() != {field.name for field in fields(ProbeReport)}:
        return None
    control = answer.pop("control")
    if not isinstance(control, bool) or not all(
        isinstance(listed, list) and all(isinstance(entry, str) for entry in listed)
        for listed in answer.values()
    ):
        return None
    return ProbeReport(control=control, **{name: tuple(listed) for name, listed in answer.items()})


def conclusion(report: ProbeReport | None, *, trusted: bool) -> Finding:
    """The condition that follows from a report; None: the probe ended without one.

    Args:
        trusted: whether the cache's ports ask for certificates.
    """
    kind = names.NETWORK_ISOLATED
    if report is None:
        text = (
            "the pod that tries to reach the cache ended without a report, as on a node that is overloaded; it is "
            "tried again within the hour, and helm test tries the same at once"
        )
        return finding(kind, None, "ProbeFailed", text)
    if report.reached:
        harm = (
            "they ask every caller for a certificate, which alone keeps strangers out now"
            if trusted
            else "every pod of the cluster can read and change all that is cached. Set trust.enabled, too"
        )
        text = (
            f"a pod that no NetworkPolicy admits reached {', '.join(report.reached)}: {harm}. Use a network plugin "
            "that enforces NetworkPolicies, and look for policies of others that admit strangers"
        )
        return finding(kind, False, "PortsReachable", text)
    if not report.control:
        text = (
            f"the pod that tries to reach the cache does not even reach {CONTROL}, so that its tries prove nothing: "
            f"let pods with the label {names.LABEL_COMPONENT}={COMPONENT} send"
        )
        return finding(kind, None, "ProbeCutOff", text)
    if report.unnamed:
        text = f"no address was found for {', '.join(report.unnamed)}; it is tried again within the hour"
        return finding(kind, None, "ProbeFailed", text)
    text = f"a pod that no NetworkPolicy admits reached none of {counted(len(report.closed), 'port')}"
    return finding(kind, True, "NotReachable", text)


def targets(plan: Blueprint) -> tuple[str, ...]:
    """The ports of a cache, by the names of its Services: a name has the addresses of all of its pods. Those of
    Alluxio's web pages listen on loopback alone."""
    if plan.native:
        host = f"{names.workers_service_name(cluster=plan.cluster)}.{plan.namespace}.svc"
        return tuple(f"{host}:{port}" for port in (names.AGENT_CONTROL_PORT, names.AGENT_BLOCK_PORT))
    master = f"{names.master_name(cluster=plan.cluster)}.{plan.namespace}.svc"
    workers = f"{names.workers_service_name(cluster=plan.cluster)}.{plan.namespace}.svc"
    of_master = (names.MASTER_RPC_PORT, names.MASTER_WEB_PORT)
    of_worker = (
        names.WORKER_RPC_PORT,
        names.WORKER_WEB_PORT,
        names.AGENT_CONTROL_PORT,
        names.AGENT_BLOCK_PORT,
    )
    return (*(f"{master}:{port}" for port in of_master), *(f"{workers}:{port}" for port in of_worker))


def job(plan: Blueprint, *, window: int, also: Sequence[str] = ()) -> Object:
    """The Job of a probe. Its pod has none of the labels that policies for the cache select or admit.

    Args:
        plan: the cache.
        window: which hour it is for.
        also: ports of the release that are tried, too, as HOST:PORT.
    """
    uid = plan.owner["metadata"].get("uid", "")
    name = f"{plan.cluster}-probe-{digest_of([uid, window])}"
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: COMPONENT}
    tries = [f"--target={target}" for target in (*targets(plan), *also)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata_of(plan, name=name, component=COMPONENT),
        "spec": {
            "backoffLimit": 1,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    **plan.pulls,
                    "containers": [
                        {
                            "name": COMPONENT,
                            "image": plan.agent_image,
                            "imagePullPolicy": "IfNotPresent",
                            "args": [
                                "network-probe",
                                f"--control={CONTROL}",
                                *tries,
                                f"--report={REPORT_FILE}",
                            ],
                            "resources": {
                                "requests": {"cpu": "10m", "memory": "64Mi"},
                                "limits": {"memory": "256Mi"},
                            },
                            "securityContext": pod_security.unprivileged(),
                        }
                    ],
                },
            },
        },
    }


def report_of(pods: Sequence[Mapping[str, Any]]) -> ProbeReport | None:
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            report = parse_report(ended.get("message") or "")
            if report is not None:
                return report
    return None


class NetworkProbe:
    """Has every cache tried once in each period, and after a start of the operator.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, *, context: Context, clock: Callable[[], float] = time.time) -> None:
        self._context: Final = context
        self._clock: Final = clock
        self._concluded: Final[dict[str, int]] = {}
        """Of each CacheCluster, by uid: the period in which it was last tried."""

    async def reconcile(self, plan: Blueprint) -> Finding | None:
        """One step for a cache that is ready; a finding when a probe has ended in it, else None."""
        if not self._context.settings.network_probe:
            return None
        uid = str(plan.owner["metadata"]["uid"])
        window = int(self._clock() // PERIOD_SECONDS)
        if self._concluded.get(uid) == window:
            return None
        probe_job = job(plan, window=window, also=self._context.settings.probe_targets)
        name, api = probe_job["metadata"]["name"], self._context.api
        live = await api.get(JOBS, name=name, namespace=plan.namespace)
        if live is None:
            try:
                await self._context.applier.apply(JOBS, wanted=probe_job, live=None, owner=plan.owner)
            except (ForbiddenError, InvalidError) as error:
                self._concluded[uid] = window
                return finding(names.NETWORK_ISOLATED, None, "ProbeRefused", str(error))
            return None
        if not belongs(live, plan.owner) or not job_ending(live):
            return None
        self._concluded[uid] = window
        labels = f"batch.kubernetes.io/job-name={name}"
        pods = await api.list(PODS, namespace=plan.namespace, labels=labels)
        return conclusion(report_of(pods.items), trusted=plan.trust is not None)
