"""Runs the experiment on the local cluster: predicts each run, then measures it."""

import base64
import datetime
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from tdcs.trust.certificates import KeyPair, Subject, make_certificate
from tdcs.trust.identity import CERTIFICATE_FILE, KEY_FILE, Identity
from tdcs.trust.roles import Role
from tdcs.trust.settings import TrustSettings
from tdcs_local import demo
from tdcs_local.errors import LocalError
from tdcs_local.experiment import objects, pictures, stock_mount
from tdcs_local.experiment.analysis import Measured
from tdcs_local.experiment.plan import (
    CACHE_BYTES,
    MOST_SECONDS,
    START_SECONDS,
    Configuration,
    Plan,
    Run,
    Setting,
)
from tdcs_local.experiment.prediction import predicted_seconds, simulated_seconds
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl, Object, condition, unmet
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations


def run(plan: Plan, *, results: Path, reporter: Reporter) -> Object:
    """Run the plan on a cluster that is up; the results, which are written after every run, predictions before it."""
    kubectl = Kubectl()
    try:
        tags = prepare(reporter=reporter, kubectl=kubectl)
        document = _run(plan, tags=tags, results=results, reporter=reporter, kubectl=kubectl)
    except BaseException:
        try:
            tidy(reporter=reporter, kubectl=kubectl)
        except LocalError as error:
            reporter.say(f"not all that the experiment made was deleted: {error}")
        raise
    tidy(reporter=reporter, kubectl=kubectl)
    return document


def _run(plan: Plan, *, tags: dict[str, str], results: Path, reporter: Reporter, kubectl: Kubectl) -> Object:
    count, size = pictures.fill(reporter=reporter)
    setting = Setting(images=count, total_bytes=size, cpus=os.cpu_count() or 1)
    estimated = plan.estimated_seconds(setting)
    reporter.say(
        f"{len(list(plan.runs()))} runs, about {estimated / 60:.0f} minutes; the GPU is a sleep of "
        f"{setting.batch_seconds:g} s a batch"
    )
    if estimated > MOST_SECONDS:
        raise LocalError(
            what=f"the runs take {estimated / 60:.0f} minutes by their own estimate, more than 30"
        )
    document: dict[str, Any] = {"setting": asdict(setting), "plan": asdict(plan), "runs": []}
    began = time.monotonic()
    image = f"tdcs/s3-mount:{tags['s3-mount']}"
    shaped = 0
    loading = 0.0
    for run in plan.runs():
        if run.mbit != shaped:
            operations.set_link(egress=f"{run.mbit}mbit", ingress="unlimited", reporter=reporter)
            shaped = run.mbit
        if run.configuration is Configuration.STOCK:
            mount_stock(reporter=reporter, kubectl=kubectl)
        elif run.configuration is Configuration.PRELOADED:
            loading = renew_dataset(reporter=reporter, kubectl=kubectl)
        predicted = predicted_seconds(run, setting, cache_bytes=CACHE_BYTES)
        simulated = simulated_seconds(run, setting)
        document["runs"].append({"run": asdict(run), "predicted": predicted, "simulated": simulated})
        write(document, results)
        reports, sent = measure(run, setting, image=image, reporter=reporter, kubectl=kubectl)
        starts = [report["began"] for report in reports]
        document["runs"][-1] = Measured(
            run=run,
            predicted=predicted,
            simulated=simulated,
            seconds=tuple(report["ended"] - report["began"] for report in reports),
            images=setting.epochs * setting.images,
            source_bytes=sent,
            load_seconds=loading if run.configuration is Configuration.PRELOADED else 0.0,
            load_average=os.getloadavg()[0],
            late_seconds=max(starts) - min(starts),
            epochs=tuple(tuple(report["epochs"]) for report in reports),
        ).document()
        document["minutes"] = round((time.monotonic() - began) / 60, 1)
        write(document, results)
    return document


def write(document: Object, results: Path) -> None:
    """The results as they are by now."""
    results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def prepare(*, reporter: Reporter, kubectl: Kubectl) -> dict[str, str]:
    """Images, store, TDCS, a second CacheCluster of the profile Stock, and the nodes that take part."""
    tags = images.ensure((*release.IMAGES, "store", "s3-mount"), reporter=reporter)
    operations.up(reporter=reporter)
    release.install(
        reporter=reporter,
        kubectl=kubectl,
        tags=tags,
        settings={"admissionPolicies.fuseImages[0]": f"tdcs/alluxio:{tags['alluxio']}"},
    )
    (store,) = kubectl.list(
        "pods", namespace=operations.NAMESPACE, selector="app.kubernetes.io/name=tdcs-store"
    )
    nodes = [node["metadata"]["name"] for node in kubectl.list("nodes")]
    workers = [name for name in nodes if "worker" in name and name != store["spec"]["nodeName"]]
    for name in workers[:2]:
        kubectl("label", "node", name, f"{objects.LABEL}=true", "--overwrite")
    kubectl.apply(objects.namespace())
    datasets.grant_access(kubectl, namespace=objects.NAMESPACE, reporter=reporter)
    program = Path(__file__).with_name(objects.SCRIPT).read_text(encoding="utf-8")
    kubectl.apply(objects.script(program))
    forget(kubectl=kubectl)
    default = kubectl.get("cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=release.NAMESPACE)
    if default is None:
        raise LocalError(what="TDCS has no CacheCluster", remedy="`make install`")
    kubectl.apply(objects.stock_cluster(default), objects.stock_policy(default))
    _wait(
        "CacheCluster stock",
        lambda: kubectl.get("cacheclusters.tdcs.io", objects.STOCK_CLUSTER, namespace=release.NAMESPACE),
        kind="Ready",
        reporter=reporter,
        kubectl=kubectl,
    )
    return tags


def forget(*, kubectl: Kubectl) -> None:
    """Delete what an earlier experiment left."""
    kubectl("delete", "jobs", "--all", "--wait", "-n", objects.NAMESPACE)
    kubectl.delete("datasets.tdcs.io", objects.DATASET, namespace=objects.NAMESPACE)


def tidy(*, reporter: Reporter, kubectl: Kubectl) -> None:
    """Take away what the experiment made, and give the store the link of the demo again."""
    with reporter.step("delete what the experiment made"):
        forget(kubectl=kubectl)
        kubectl.delete("cacheclusters.tdcs.io", objects.STOCK_CLUSTER, namespace=release.NAMESPACE)
        kubectl.delete("networkpolicies", objects.STOCK_POLICY, namespace=release.NAMESPACE)
        kubectl.delete("namespaces", objects.NAMESPACE)
        kubectl("label", "nodes", "--all", f"{objects.LABEL}-")
    operations.set_link(egress=demo.LINK, ingress="unlimited", reporter=reporter)


def mount_stock(*, reporter: Reporter, kubectl: Kubectl) -> None:
    """Mount the bucket in stock Alluxio, which has nothing of it cached then."""
    keys = _secret(kubectl, datasets.KEYS, namespace=objects.NAMESPACE)
    authority = _secret(
        kubectl,
        TrustSettings(provider="selfSigned", prefix="tdcs-trust").authority,
        namespace=release.NAMESPACE,
    )
    request = objects.stock_mount(
        {key: value.decode() for key, value in keys.items()},
        identity=_operator(authority) if authority else None,
    )
    program = Path(stock_mount.__file__).read_text(encoding="utf-8")
    where = ("deployment/tdcs-operator", "-n", release.NAMESPACE)
    with reporter.step("mount the bucket in stock Alluxio"):
        kubectl(
            *("exec", "-i", *where, "--", "python3", "-c", program),
            stdin=msgspec.json.encode(request).decode(),
            what="the bucket was not mounted in stock Alluxio",
            timeout=300,
        )


def _secret(kubectl: Kubectl, name: str, *, namespace: str) -> dict[str, bytes]:
    """The files of a Secret; none when there is none of that name."""
    secret = kubectl.get("secrets", name, namespace=namespace) or {}
    return {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}


def _operator(authority: Mapping[str, bytes]) -> Identity:
    """A certificate by which the master takes the experiment for the operator, which alone may mount."""
    certificate = make_certificate(
        subject=Subject(role=Role.OPERATOR),
        authority=KeyPair(certificate=authority[CERTIFICATE_FILE], key=authority[KEY_FILE]),
        until=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1),
    )
    return Identity(
        certificate=certificate.certificate, key=certificate.key, authorities=authority[CERTIFICATE_FILE]
    )


def renew_dataset(*, reporter: Reporter, kubectl: Kubectl) -> float:
    """Delete the Dataset with what is cached of it and make it again; the seconds until it was loaded."""
    kubectl.delete("datasets.tdcs.io", objects.DATASET, namespace=objects.NAMESPACE)
    began = time.monotonic()
    kubectl.apply(objects.dataset())
    _wait(
        f"Dataset {objects.DATASET}",
        lambda: kubectl.get("datasets.tdcs.io", objects.DATASET, namespace=objects.NAMESPACE),
        kind="Loaded",
        reporter=reporter,
        kubectl=kubectl,
    )
    return time.monotonic() - began


def measure(
    run: Run, setting: Setting, *, image: str, reporter: Reporter, kubectl: Kubectl
) -> tuple[list[dict[str, Any]], int]:
    """Run the jobs to their end: what each printed, and the object bytes that left the store meanwhile."""
    name = f"{run.configuration.name.lower()}-{run.mbit}-{run.jobs}-{run.repetition}"
    sent = operations.payload_bytes_sent(bucket=pictures.BUCKET)
    begin = time.time() + START_SECONDS
    kubectl.apply(*objects.jobs(run, setting, name=name, image=image, begin=begin))
    names = [f"{name}-{number}" for number in range(run.jobs)]

    def look() -> str | None:
        jobs = {job["metadata"]["name"]: job for job in kubectl.list("jobs", namespace=objects.NAMESPACE)}
        for name in names:
            if condition(jobs.get(name), "Failed").get("status") == "True":
                raise LocalError(
                    what=f"Job {name} failed",
                    why=kubectl("logs", f"job/{name}", "-n", objects.NAMESPACE)[-1500:],
                )
        running = [name for name in names if condition(jobs.get(name), "Complete").get("status") != "True"]
        return f"{len(running)} of {run.jobs} jobs run" if running else None

    with reporter.step(name) as step:
        kubectl.wait(
            look,
            what=f"the jobs of {name} did not complete",
            seconds=420,
            step=step,
            explain=lambda: kubectl("describe", "pods", "-n", objects.NAMESPACE)[-2500:],
        )
        reports = [
            json.loads(kubectl("logs", f"job/{name}", "-n", objects.NAMESPACE).splitlines()[-1])
            for name in names
        ]
        step.result = f"epochs {[report['epochs'] for report in reports]}"
    total = operations.payload_bytes_sent(bucket=pictures.BUCKET) - sent
    for job in names:
        kubectl.delete("jobs", job, namespace=objects.NAMESPACE)
    return reports, total


def _wait(
    name: str, get: Callable[[], Object | None], *, kind: str, reporter: Reporter, kubectl: Kubectl
) -> None:
    with reporter.step(f"{name} {kind}") as step:
        kubectl.wait(lambda: unmet(get(), kind), what=f"{name} did not become {kind}", seconds=300, step=step)
