"""pytest fixtures around a control plane; ``tests/controlplane/conftest.py`` shows how to use them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.controlplane.commands import Options
from tests.support.controlplane.instance import ControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.kube import Kube
from tests.support.report import record
from tests.support.rights.comparison import use_of
from tests.support.rights.records import record as record_rights
from tests.support.waiting import eventually

TEST_LABEL = "tests.tdcs.io/namespace"

_LIVE = pytest.StashKey[list[ControlPlane]]()
_LOG_SIZES = pytest.StashKey[dict[Path, int]]()


class FakeNodes(Protocol):
    """Makes ``count`` nodes NAMESPACE-0000, … that KWOK plays, and waits until they are Ready; their names."""

    def __call__(
        self, *, count: int, gpus: int = 8, labels: Mapping[str, str] | None = None
    ) -> list[str]: ...


OwnControlPlane = Callable[..., ControlPlane]


@pytest.fixture(scope="session")
def shared_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The run's control plane. Tests take ``control_plane``; this one is for fixtures of a wider scope."""
    with _tracked(request.config, ControlPlane(folder=tmp_path_factory.mktemp("control-plane"))) as plane:
        record(request.config, f"shared control plane ready in {plane.start_seconds:.1f} s")
        yield plane


@pytest.fixture
def control_plane(shared_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The run's control plane; programs and schedulers that the test starts in it end with the test.

    Tests in it keep apart by ``namespace``. A test that kills parts of the control
    plane, or needs another default scheduler, takes ``own_control_plane``.
    """
    before = set(shared_control_plane.processes)
    yield shared_control_plane
    for name in [name for name in shared_control_plane.processes if name not in before]:
        shared_control_plane.remove(name)


@pytest.fixture
def own_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnControlPlane]:
    """Starts control planes of the test's own: ``own_control_plane(scheduler_config=…, extra_args=…)``.

    Keywords are those of ``Options``. They end with the test.
    """
    with ExitStack() as stack:

        def start(**options: object) -> ControlPlane:
            folder = tmp_path_factory.mktemp("own-control-plane")
            plane = ControlPlane(folder=folder, options=Options(**options))  # type: ignore[arg-type]
            return stack.enter_context(_tracked(request.config, plane))

        yield start


@pytest.fixture
def kube(control_plane: ControlPlane) -> Kube:
    """The administrator's client of the run's control plane."""
    return control_plane.kube


@pytest.fixture
def namespace(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace in which pods can be created; it and its pods are deleted after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    name = f"{words[:40].strip('-')}-{uuid.uuid4().hex[:6]}"
    kube = control_plane.kube
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    control_plane.wait_for_namespace(name)
    yield name
    # The namespace first: nothing new can be made in it from then on. Its end takes the
    # namespace controller seconds that no other test has to wait for, unlike the room its pods take.
    kube.delete("Namespace", name)
    kube.delete_all("Pod", namespace=name, grace_seconds=0)
    eventually(lambda: not kube.list("Pod", namespace=name), deadline=120)


@pytest.fixture
def fake_nodes(control_plane: ControlPlane, namespace: str) -> Iterator[FakeNodes]:
    """Makes nodes that KWOK plays, named and labelled (``TEST_LABEL``) by the namespace; deleted after the test."""
    kube = control_plane.kube
    node_names: list[str] = []

    def make(*, count: int, gpus: int = 8, labels: Mapping[str, str] | None = None) -> list[str]:
        names = [f"{namespace}-{number:04d}" for number in range(len(node_names), len(node_names) + count)]
        node_names.extend(names)
        node_labels = {TEST_LABEL: namespace, **(labels or {})}
        add_fake_nodes(control_plane, names=names, gpus=gpus, labels=node_labels)
        return names

    yield make
    if node_names:
        kube.delete_all("Node", labels={TEST_LABEL: namespace})


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how long each log is, so that a failure shows what was written during the test."""
    item.config.stash[_LOG_SIZES] = {
        process.log: process.log.stat().st_size
        for plane in item.config.stash.get(_LIVE, [])
        for process in plane.processes.values()
        if process.log.exists()
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test's report where the logs are, and what they say since the test began."""
    report = yield
    if report.failed:
        sizes = item.config.stash.get(_LOG_SIZES, {})
        for plane in item.config.stash.get(_LIVE, []):
            lines = []
            for process in plane.processes.values():
                tail = process.tail(since=sizes.get(process.log, 0))
                lines.append(f"{process.log}: {'' if tail else 'nothing new'}")
                lines += [f"    {line}" for line in tail.splitlines()]
            report.sections.append(
                (f"control plane logs since the test began: {plane.folder}", "\n".join(lines))
            )
    return report


@contextmanager
def _tracked(config: pytest.Config, plane: ControlPlane) -> Iterator[ControlPlane]:
    """A running control plane, known to the failure reports; the rights that were used in it are recorded."""
    live = config.stash.setdefault(_LIVE, [])
    try:
        with plane:
            live.append(plane)
            try:
                yield plane
            finally:
                live.remove(plane)
    finally:
        record_rights(use_of(plane.audit.all_calls()), tier="controlplane")
