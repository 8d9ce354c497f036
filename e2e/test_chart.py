"""The installed chart proves itself, and follows the one before it without disturbing anybody."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.test_training import logs_of, reading_job, succeeded
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

CHART = ("charts", "crds")
"""What of the checkout is the chart."""
TEMPLATES = Path("charts", "tdcs", "templates")
RIGHTS = "*-rbac.yaml"
"""Those of its templates that say what today's images may do."""


def chart_before(folder: Path) -> Path:
    """The chart as it was before the last commit that changed it. Skips where the history does not tell.

    Its rights are today's, for it runs today's images: an operator that may not list what it needs never gets ready.
    """

    def git(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", "-C", CHECKOUT, *words], capture_output=True, check=False)

    last = git("log", "-1", "--format=%H", "--", *CHART, f":(exclude){TEMPLATES / RIGHTS}")
    tree = git("archive", f"{last.stdout.decode().strip()}~1", *CHART)
    if tree.returncode:
        why = (last.stderr or tree.stderr).decode().strip()
        pytest.skip(f"this checkout has no earlier chart to upgrade from; a full clone has (git: {why})")
    subprocess.run(["tar", "-x", "-C", folder], input=tree.stdout, check=True)
    for template in (CHECKOUT / TEMPLATES).glob(RIGHTS):
        shutil.copy(template, folder / TEMPLATES)
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
    before = chart_before(tmp_path)
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, chart=before)
    held = demo.load_dataset(reporter=reporter, kubectl=kubectl).held
    sent = operations.payload_bytes_sent(bucket=demo.DATASET)
    name = "upgraded"
    kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    script = "until [ -e /tmp/end ]; do cat $(find /data -type f | head -n 100) > /dev/null; sleep 0.2; done; echo told"
    kubectl.apply(reading_job(name, image=toolbox, workers=1, script=script))

    def running() -> str | None:
        job = kubectl.get("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE) or {}
        state = job.get("status", {}).get("state")
        return None if state == "Running" else f"its state is {state}"

    kubectl.wait(running, what=f"TrainingJob {name} does not run", seconds=120)
    (old,) = kubectl.list("pods", namespace=demo.NAMESPACE, selector=f"tdcs.io/training-job={name}")

    release.install(reporter=reporter, kubectl=kubectl, tags=tags)

    (new,) = kubectl.list("pods", namespace=demo.NAMESPACE, selector=f"tdcs.io/training-job={name}")
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    kubectl("exec", new["metadata"]["name"], "-n", demo.NAMESPACE, "--", "touch", "/tmp/end")
    succeeded(kubectl, name)
    assert logs_of(kubectl, name) == ["told"]
    assert demo.node_bytes(kubectl) == held
    assert operations.payload_bytes_sent(bucket=demo.DATASET) == sent
