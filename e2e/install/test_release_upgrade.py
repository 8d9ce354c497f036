"""The packaged release is installed, used, and upgraded to this checkout; nothing that it held is lost.

The release is the folder that `make package` has written (`.local/release`, or TDCS_RELEASE): its chart as helm packed
it, and its images as OCI layouts. `make upgrade` makes that of the last tag and runs this.
"""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest, logs_of, reading_job, succeeded
from tdcs_local import demo, shell
from tdcs_local.kind import cluster, images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

RELEASE = Path(os.environ.get("TDCS_RELEASE", CHECKOUT / ".local" / "release"))


@pytest.fixture(scope="module")
def packaged() -> Path:
    """The chart of the packaged release."""
    charts = sorted(RELEASE.glob("tdcs-*.tgz"))
    if not charts:
        pytest.skip(
            f"no packaged release in {RELEASE}: run `make upgrade`, or name its folder in TDCS_RELEASE"
        )
    return charts[-1]


@pytest.fixture(scope="module")
def tags(packaged: Path, kubectl: Kubectl) -> dict[str, str]:
    """The tags of the packaged images, which are on the nodes."""
    version = packaged.name.removeprefix("tdcs-").removesuffix(".tgz")
    cluster.TRANSFER.mkdir(parents=True, exist_ok=True)
    for name in release.IMAGES:
        laid = cluster.TRANSFER / f"release-{name}.tar"
        with tarfile.open(laid, "w") as archive:
            archive.add(RELEASE / "images" / name, arcname=".")
        try:
            for node in cluster.node_names(cluster.name()):
                inside = f"{cluster.NODE_TRANSFER}/{laid.name}"
                words = [
                    "ctr",
                    "--namespace=k8s.io",
                    "images",
                    "import",
                    "--base-name",
                    f"docker.io/tdcs/{name}",
                ]
                shell.run(
                    ["docker", "exec", node, *words, inside],
                    what=f"loading the packaged image {name} failed (on {node})",
                    log=log_file("release-images"),
                )
        finally:
            laid.unlink()
    return dict.fromkeys(release.IMAGES, version)


@pytest.fixture
def this_checkout_after(kubectl: Kubectl, reporter: Reporter) -> Iterator[dict[str, str]]:
    """The tags of this checkout's images; its chart is installed in the end, whatever happened."""
    newest = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    yield newest
    release.install(reporter=reporter, kubectl=kubectl, tags=newest)


@pytest.mark.deep("between settings of one version: e2e/install/test_chart.py")
def test_an_upgrade_from_the_packaged_release_keeps_data_and_running_jobs(
    packaged: Path,
    tags: dict[str, str],
    this_checkout_after: dict[str, str],
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    toolbox: str,
) -> None:
    namespace = demo.NAMESPACE
    release.uninstall(reporter=reporter, kubectl=kubectl)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, chart=packaged)
    held = demo.load_dataset(reporter=reporter, kubectl=kubectl).held
    for name in ("before-upgrade", "through-upgrade", "after-upgrade"):
        kubectl.delete("trainingjobs.tdcs.io", name, namespace=namespace)
    kubectl.apply(reading_job("before-upgrade", image=toolbox, workers=1, script=PRINT_CHECKSUMS))
    succeeded(kubectl, "before-upgrade")
    script = f"until [ -e /tmp/end ]; do ls /data > /dev/null; sleep 0.2; done; {PRINT_CHECKSUMS}"
    kubectl.apply(reading_job("through-upgrade", image=toolbox, workers=1, script=script))

    def running() -> str | None:
        job = kubectl.get("trainingjobs.tdcs.io", "through-upgrade", namespace=namespace) or {}
        state = job.get("status", {}).get("state")
        return None if state == "Running" else f"its state is {state}"

    kubectl.wait(running, what="TrainingJob through-upgrade does not run", seconds=120)
    selector = "tdcs.io/training-job=through-upgrade"
    (before,) = kubectl.list("pods", namespace=namespace, selector=selector)
    claim = kubectl.get("persistentvolumeclaims", demo.DATASET, namespace=namespace) or {}
    sent = operations.payload_bytes_sent(bucket=demo.DATASET)

    release.install(reporter=reporter, kubectl=kubectl, tags=this_checkout_after)

    (after,) = kubectl.list("pods", namespace=namespace, selector=selector)
    assert after["metadata"]["uid"] == before["metadata"]["uid"], "the pod of the running job was replaced"
    kubectl("exec", after["metadata"]["name"], "-n", namespace, "--", "touch", "/tmp/end")
    succeeded(kubectl, "through-upgrade")
    assert expected_digest() in logs_of(kubectl, "through-upgrade")[0]
    ended = kubectl.get("trainingjobs.tdcs.io", "before-upgrade", namespace=namespace) or {}
    assert ended["status"]["state"] == "Succeeded", "a job that had ended ran again"
    claim_now = kubectl.get("persistentvolumeclaims", demo.DATASET, namespace=namespace) or {}
    assert claim_now["metadata"]["uid"] == claim["metadata"]["uid"], "the Dataset has another claim"

    def whole() -> str | None:
        bytes_now = demo.node_bytes(kubectl)
        return (
            None
            if sorted(bytes_now.values()) == sorted(held.values())
            else f"it is {bytes_now}, and was {held}"
        )

    kubectl.wait(whole, what="the Dataset is not as whole as it was", seconds=120)
    kubectl.apply(reading_job("after-upgrade", image=toolbox, workers=1, script=PRINT_CHECKSUMS))
    succeeded(kubectl, "after-upgrade")
    assert expected_digest() in logs_of(kubectl, "after-upgrade")[0]
    # Workers that start again may leave some reads to the source; nothing is loaded again.
    assert operations.payload_bytes_sent(bucket=demo.DATASET) - sent < 0.5 * min(held.values())
