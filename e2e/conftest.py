"""Fixtures of the end-to-end tier: the local cluster of this checkout, TDCS installed by its chart, a namespace a test.

    def test_something(kubectl: Kubectl, namespace: str) -> None:          # a bare cluster is enough
    def test_something(tdcs: None, store_filled: None, namespace: str): ...  # TDCS and the object store are there

Run `make e2e`, or `make up` once and then `.venv/bin/python -m pytest e2e -k name`.
"""

import uuid
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tdcs_local import demo
from tdcs_local.errors import LocalError
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import KUBECONFIG
from tdcs_local.progress import Reporter

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
LAST = ("test_release_upgrade.py", "test_kubeflow.py", "test_kueue.py", "test_chaos.py", "test_uninstall.py")
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failing test body, so that its fixtures can print what explains it before they clean up."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes the cache away runs last, chaos before it, and what adds other projects' managers before that."""
    items.sort(key=lambda item: LAST.index(item.path.name) if item.path.name in LAST else -1)


@pytest.fixture(scope="session")
def reporter() -> Reporter:
    """Prints what the fixtures prepare."""
    return Reporter()


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """The local cluster's API. Fails, never skips, when the cluster is not there; no other context is ever used."""
    if not Path(KUBECONFIG).exists():
        pytest.fail("there is no local cluster of this checkout; run `make up` first, or `make e2e`")
    return Kubectl()


@pytest.fixture(scope="session")
def workers(kubectl: Kubectl) -> list[str]:
    """Names of the worker nodes."""
    nodes = kubectl.list("nodes", selector="!node-role.kubernetes.io/control-plane")
    return sorted(node["metadata"]["name"] for node in nodes)


@pytest.fixture(scope="session")
def toolbox(kubectl: Kubectl, reporter: Reporter) -> str:
    """The image with small tools that the tests' own pods run."""
    return f"tdcs/toolbox:{images.ensure(['toolbox'], reporter=reporter)['toolbox']}"


@pytest.fixture(scope="session", autouse=True)
def training_image_on_its_way(kubectl: Kubectl, reporter: Reporter) -> Iterator[Future[dict[str, str]]]:
    """By far the largest image travels to the nodes while the first tests run; they do without it."""
    with ThreadPoolExecutor(max_workers=1) as alongside:
        yield alongside.submit(images.ensure, [demo.TRAINING_IMAGE], reporter=reporter)


@pytest.fixture(scope="session")
def training_image(training_image_on_its_way: Future[dict[str, str]]) -> None:
    """The image of the example TrainingJob is on the nodes."""
    training_image_on_its_way.result()


@pytest.fixture(scope="session")
def tdcs(kubectl: Kubectl, reporter: Reporter) -> None:
    """TDCS installed from this checkout, its cache cluster ready."""
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags)


@pytest.fixture(scope="session")
def store_filled(kubectl: Kubectl, reporter: Reporter) -> None:
    """The object store behind its slow link, filled with the example images."""
    images.ensure(["store"], reporter=reporter)
    demo.prepare_store(reporter=reporter)


@pytest.fixture
def readers(kubectl: Kubectl) -> Iterator[list[str]]:
    """Names of pods that are removed after the test."""
    names: list[str] = []
    yield names
    for name in names:
        kubectl.delete("pod", name, namespace=demo.NAMESPACE)


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own under PodSecurity `restricted`; its objects are printed when the test fails."""
    yield from _namespace(kubectl, request, labels=RESTRICTED)


@pytest.fixture
def privileged_namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace whose pods may be privileged, for what only a mounter or a shaper may do."""
    yield from _namespace(kubectl, request, labels={"pod-security.kubernetes.io/enforce": "privileged"})


def _namespace(kubectl: Kubectl, request: pytest.FixtureRequest, *, labels: dict[str, str]) -> Iterator[str]:
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield name
    if request.node.stash.get(FAILED, False):
        print(describe(kubectl, name))
    kubectl.delete("namespace", name, timeout=300)


def describe(kubectl: Kubectl, namespace: str) -> str:
    """What of a namespace explains a failure: objects, conditions, events. Never fails itself."""
    tdcs_kinds = "datasets.tdcs.io,trainingjobs.tdcs.io"
    scope = ("-n", namespace)
    return "\n".join(
        _output(kubectl, *words)
        for words in (
            ("get", "pods,jobs,persistentvolumeclaims", *scope, "-o", "wide"),
            ("get", tdcs_kinds, *scope, "-o", "wide"),
            ("describe", tdcs_kinds, *scope),
            ("describe", "pods", *scope),
            ("get", "events", *scope, "--sort-by=.lastTimestamp"),
        )
    )


def _output(kubectl: Kubectl, *words: str) -> str:
    try:
        return kubectl(*words)
    except LocalError as error:  # the kinds of TDCS are missing, say: the test's own failure is the news
        return str(error)
