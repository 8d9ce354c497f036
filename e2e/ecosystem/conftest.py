"""The managers of other projects, a Dataset on two of three nodes, and TDCS with its part for Kueue switched on."""

from collections.abc import Iterator

import pytest
from tests.support.kube.claimed_pods import CLAIM
from tests.support.report import pytest_terminal_summary, record

from e2e.ecosystem import managers
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets

__all__ = ["pytest_terminal_summary"]

READY_SECONDS = 120
"""From the first command until all managers serve, images apart."""


@pytest.fixture(scope="package")
def kubeflow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """JobSet, Kubeflow Trainer and Kueue, on one of the worker nodes; skipped where they are not built."""
    managers.require()
    kubectl: Kubectl = request.getfixturevalue("kubectl")
    workers: list[str] = request.getfixturevalue("workers")
    request.getfixturevalue("tdcs")
    rights = managers.allow_to_read_training_jobs()
    kubectl.apply(*rights)
    scratch = tmp_path_factory.mktemp("charts")
    with managers.installed(kubectl, list(managers.CHARTS), node=workers[-1], scratch=scratch) as seconds:
        record(request.config, f"Kueue, JobSet and Trainer ready {seconds:.0f} s after helm began")
        assert seconds <= READY_SECONDS
        yield
    for right in rights:
        kubectl.delete(right["kind"], right["metadata"]["name"])


@pytest.fixture(scope="package")
def kueue_enabled(kubeflow: None, kubectl: Kubectl, reporter: Reporter) -> Iterator[None]:
    """TDCS with its part for Kueue, and without the webhook that gives pods its scheduler."""
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    settings = {"kueue.enabled": "true", "placeByData": "Off"}
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings=settings)
    yield
    release.install(reporter=reporter, kubectl=kubectl, tags=tags)


@pytest.fixture
def holders(
    kubeflow: None, store_filled: None, namespace: str, kubectl: Kubectl, reporter: Reporter
) -> set[str]:
    """The two nodes that hold all of the Dataset `CLAIM` of the namespace."""
    datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
    place = {"mode": "Replicate", "nodeCount": 2}
    kubectl.apply(datasets.dataset(CLAIM, namespace=namespace, bucket=demo.DATASET, placement=place))
    datasets.wait_ready(kubectl, CLAIM, namespace=namespace)
    copies = datasets.copies_of(kubectl, CLAIM, namespace=namespace).values()
    nodes = {node for copy in copies for node, held in copy.items() if held}
    assert len(nodes) == 2
    return nodes
