"""Tests on a real control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and KWOK nodes.

The programs run as processes on loopback, are ready within seconds, and die with the
run whatever ends it. A test takes what it needs::

    def test_a_pod_gets_a_gpu(kube: Kube, namespace: str, fake_nodes: FakeNodes) -> None:
        fake_nodes(count=3, gpus=2)
        kube.create(gpu_pod(name="p", namespace=namespace))
        eventually(
            lambda: kube.get("Pod", "p", namespace=namespace)["spec"].get("nodeName"),
            deadline=30,
            describe=lambda: describe(kube, namespace=namespace),
        )

* ``kube``: administrator's client on plain dicts (create, apply, get, list, patch, delete, install_crds).
* ``namespace``: a namespace of the test's own; its pods are gone when the next test starts.
* ``fake_nodes(count=, gpus=, labels=)``: nodes with ``nvidia.com/gpu``, deleted after the test. Their pods "run" at
  once; those of a Job also complete at once.
* ``control_plane``: the run's control plane. ``control_plane.kubeconfig`` is a file for other programs,
  ``control_plane.start_scheduler(name=, config=)`` a second kube-scheduler, and
  ``control_plane.run(name=, argv=, env=, ready=)`` any other program (operator, extender); they end with the test.
  ``kubeconfig_as(service_account=, namespace=)`` and ``client_as(…)`` act with the rights of a ServiceAccount.
* ``shared_control_plane``: the same, for fixtures of module or session scope.
* ``own_control_plane(scheduler_config=, feature_gates=, extra_args=, kwok=)``: another instance, for a test that
  changes the default scheduler, or breaks things: ``plane.process("kube-apiserver").kill()``, ``.start()``,
  ``.restart()``, ``.pause()``, ``.resume()``.
* ``measured("1000 pods in 5 s")``: a line in the summary of the run.

When a test fails, its report has the paths of all logs and what they said since the test began.

The folders are subjects; what several of them share stands next to this file:

* ``operator_process``: the operator in a thread of the test. ``operator_command``: as a process with its real rights.
* ``operator_holder``: that process with its Lease and its metrics, in a world.
* ``operator_world``: an operator with nodes, a cache and a cluster, and objects to create in it.
* ``job_world``: nodes whose kubelet is the test. ``extender_world``: the extender and its scheduler.
* ``pod_admission``: the chart's admission of pods that mount a claim.
"""

from pathlib import Path

import pytest
from tests.support.controlplane.fixtures import (
    control_plane,
    fake_nodes,
    kube,
    namespace,
    own_control_plane,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    shared_control_plane,
)
from tests.support.report import measured, pytest_terminal_summary, pytest_testnodedown

_HERE = Path(__file__).parent

__all__ = [
    "control_plane",
    "fake_nodes",
    "kube",
    "measured",
    "namespace",
    "own_control_plane",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "shared_control_plane",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count only a test's own time against its limit: a first run builds Kubernetes in a fixture."""
    for item in items:
        if item.get_closest_marker("timeout") is None and item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.timeout(func_only=True))
