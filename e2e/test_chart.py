"""The installed chart proves itself, and follows the one of the commit before without disturbing anybody."""

import re
import subprocess
from pathlib import Path

from e2e.test_training import logs_of, reading_job, succeeded
from tdcs_local import demo, images, release, store
from tdcs_local.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT
from tdcs_local.steps import Reporter


def chart_before(folder: Path) -> Path:
    """The chart as it was one commit ago; as it is, in a checkout without history."""
    tree = subprocess.run(
        ["git", "-C", CHECKOUT, "archive", "HEAD~1", "charts", "crds"], capture_output=True, check=False
    )
    if tree.returncode:
        return CHECKOUT / "charts" / "tdcs"
    subprocess.run(["tar", "-x", "-C", folder], input=tree.stdout, check=True)
    return folder / "charts" / "tdcs"


def test_helm_test_runs_a_real_job_and_leaves_none_behind(tdcs: None, kubectl: Kubectl) -> None:
    told = release.helm_test(kubectl=kubectl)
    assert re.search(r"Phase: +Succeeded", told), told
    assert kubectl.get("pods", "tdcs-smoke-test", namespace=release.NAMESPACE) is None
    assert kubectl.list("trainingjobs.tdcs.io", namespace=release.NAMESPACE) == []


def test_an_upgrade_from_the_chart_before_leaves_data_and_running_jobs_alone(
    tdcs: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    toolbox: str,
    tmp_path: Path,
) -> None:
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, chart=chart_before(tmp_path))
    held = demo.load_dataset(reporter=reporter, kubectl=kubectl).held
    sent = store.payload_bytes_sent(bucket=demo.DATASET)
    name = "upgraded"
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    script = "until [ -e /tmp/end ]; do cat $(find /data -type f | head -n 100) > /dev/null; sleep 0.2; done; echo told"
    kubectl.apply(reading_job(name, image=toolbox, workers=1, script=script))

    def running() -> str | None:
        job = kubectl.get("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE) or {}
        state = job.get("status", {}).get("state")
        return None if state == "Running" else f"its state is {state}"

    kubectl.wait(running, what=f"TrainingJob {name} does not run", seconds=120)
    (before,) = kubectl.list("pods", namespace=demo.NAMESPACE, selector=f"tdcs.io/training-job={name}")

    release.install(reporter=reporter, kubectl=kubectl, tags=tags)

    (after,) = kubectl.list("pods", namespace=demo.NAMESPACE, selector=f"tdcs.io/training-job={name}")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    kubectl("exec", after["metadata"]["name"], "-n", demo.NAMESPACE, "--", "touch", "/tmp/end")
    succeeded(kubectl, name)
    assert logs_of(kubectl, name) == ["told"]
    assert demo.node_bytes(kubectl) == held
    assert store.payload_bytes_sent(bucket=demo.DATASET) == sent
