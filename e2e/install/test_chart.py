"""The installed chart proves itself, and is upgraded without disturbing anybody."""

import re
from collections.abc import Iterator

import pytest

from e2e.support.jobs import logs_of, reading_job, succeeded
from e2e.support.reading import (
    checks,
    failures,
    reading_pod,
    rounds,
    run_reader,
    shell,
    wait_rounds,
    wait_whole_rounds,
)
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import LOCAL
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

PLAIN = LOCAL / "values-plain.yaml"
"""Chart values without certificates."""
FILES = 100
"""As many are read by the pods on nodes without data."""


def test_helm_test_runs_a_real_job_and_leaves_none_behind(tdcs: None, kubectl: Kubectl) -> None:
    printed = release.helm_test(kubectl=kubectl)
    assert re.search(r"Phase: +Succeeded", printed), printed
    assert kubectl.get("pods", "tdcs-smoke-test", namespace=release.NAMESPACE) is None
    assert kubectl.list("trainingjobs.tdcs.io", namespace=release.NAMESPACE) == []


@pytest.fixture
def default_release_after(tdcs: None, kubectl: Kubectl, reporter: Reporter) -> Iterator[None]:
    """The chart as other tests have it, whatever a test has changed."""
    yield
    release.install(
        reporter=reporter, kubectl=kubectl, tags=images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    )


def uids(kubectl: Kubectl, component: str, *, node: str) -> set[str]:
    """Of the pods of a DaemonSet of the chart on a node."""
    pods = kubectl.list(
        "pods", namespace=release.NAMESPACE, selector=f"app.kubernetes.io/component={component}"
    )
    return {
        pod["metadata"]["uid"]
        for pod in pods
        if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp")
    }


def start_remote_reader(
    kubectl: Kubectl,
    readers: list[str],
    name: str,
    *,
    node: str,
    image: str,
    files: int = FILES,
    pause_seconds: float = 0,
) -> str:
    """A pod that reads files of the example Dataset on a node without them, once it has read all twice."""
    namespace = demo.NAMESPACE
    kubectl.apply(checks(namespace, bucket=demo.DATASET, files=files))
    thing = reading_pod(
        name, namespace=namespace, claim=demo.DATASET, node=node, image=image, pause_seconds=pause_seconds
    )
    run_reader(kubectl, readers, thing)
    wait_whole_rounds(kubectl, name, 2, namespace=namespace)
    return name


@pytest.mark.deep("upgrades with other settings while all is read: e2e/chaos/test_chaos.py")
@pytest.mark.failure_mode("upgrade-to-certificates")
def test_switching_on_what_is_the_default_leaves_data_and_running_jobs_alone(
    default_release_after: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    toolbox: str,
    workers: list[str],
    readers: list[str],
) -> None:
    """From a cache that believes every caller to certificates."""
    namespace = demo.NAMESPACE
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, values=[PLAIN])
    held = demo.load_dataset(reporter=reporter, kubectl=kubectl).held
    name = "upgraded"
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=namespace)
    script = "until [ -e /tmp/end ]; do cat $(find /data -type f | head -n 100) > /dev/null; sleep 0.2; done; echo end"
    kubectl.apply(reading_job(name, image=toolbox, workers=1, script=script))

    def running() -> str | None:
        job = kubectl.get("trainingjobs.tdcs.io", name, namespace=namespace) or {}
        state = job.get("status", {}).get("state")
        return None if state == "Running" else f"its state is {state}"

    kubectl.wait(running, what=f"TrainingJob {name} does not run", seconds=120)
    (old,) = kubectl.list("pods", namespace=namespace, selector=f"tdcs.io/training-job={name}")
    (away,) = set(workers) - set(held)
    # While the workers are away it reads from the source, so it reads little: the rest is sent for loads.
    image = f"tdcs/tdcs:{tags['tdcs']}"
    remote = start_remote_reader(
        kubectl, readers, "from-elsewhere", node=away, image=image, files=20, pause_seconds=0.5
    )
    assert int(shell(kubectl, remote, "find /data -type f -links 1 | wc -l")) >= 20
    assert demo.node_bytes(kubectl) == held
    sent = operations.payload_bytes_sent(bucket=demo.DATASET)
    done = len(rounds(kubectl, remote, namespace=namespace))

    release.install(reporter=reporter, kubectl=kubectl, tags=tags)

    # The cache starts again with certificates, and meanwhile what is on other nodes cannot be read: reads fail or wait.
    wait_whole_rounds(kubectl, remote, 5, namespace=namespace)
    met = rounds(kubectl, remote, namespace=namespace)[done:]
    print(
        f"{len(met)} rounds, {sum(bool(record['failed']) for record in met)} with failures: {failures(met)[:3]}"
    )
    print(f"the longest read took {max(record['longest'] for record in met)} s")
    assert not [text for text in failures(met) if "wrong bytes" in text]
    # A pod whose files are on its node saw nothing of it.
    (new,) = kubectl.list("pods", namespace=namespace, selector=f"tdcs.io/training-job={name}")
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    kubectl("exec", new["metadata"]["name"], "-n", namespace, "--", "touch", "/tmp/end")
    succeeded(kubectl, name)
    assert logs_of(kubectl, name) == ["end"]

    def whole() -> str | None:
        bytes_now = demo.node_bytes(kubectl)
        return (
            None
            if sorted(bytes_now.values()) == sorted(held.values())
            else f"it is {bytes_now}, and was {held}"
        )

    # A worker that is away for over a minute, on a busy machine, gives its copy to another node, from the other copy.
    kubectl.wait(whole, what="the Dataset is not as whole as it was", seconds=120)
    # The pod on the other node may have read from the source while the workers were away; nothing was loaded again.
    again = operations.payload_bytes_sent(bucket=demo.DATASET) - sent
    print(f"the source sent {again} bytes; before {held}, after {demo.node_bytes(kubectl)}")
    assert again < 0.5 * min(held.values())


@pytest.mark.deep(
    "e2e/data/test_remote_reads.py::test_no_read_fails_while_reader_agent_and_plugin_are_killed_and_upgraded"
)
@pytest.mark.failure_mode("node-plugins-upgraded")
def test_an_upgrade_of_the_node_plugin_in_the_middle_of_an_epoch_costs_no_read(
    default_release_after: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    workers: list[str],
    readers: list[str],
) -> None:
    namespace = demo.NAMESPACE
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    held = demo.load_dataset(reporter=reporter, kubectl=kubectl).held
    (away,) = set(workers) - set(held)
    remote = start_remote_reader(
        kubectl, readers, "through-upgrade", node=away, image=f"tdcs/tdcs:{tags['tdcs']}"
    )
    plugin, holder = uids(kubectl, "csi", node=away), uids(kubectl, "reader-holder", node=away)
    done = len(rounds(kubectl, remote, namespace=namespace))

    release.install(
        reporter=reporter, kubectl=kubectl, tags=tags, settings={"csi.resources.requests.cpu": "11m"}
    )

    wait_rounds(kubectl, remote, len(rounds(kubectl, remote, namespace=namespace)) + 2, namespace=namespace)
    assert not plugin & uids(kubectl, "csi", node=away)
    assert holder == uids(kubectl, "reader-holder", node=away)
    met = rounds(kubectl, remote, namespace=namespace)[done:]
    print(
        f"{sum(record['files'] for record in met)} files, the longest read {max(record['longest'] for record in met)} s"
    )
    assert not failures(met)
