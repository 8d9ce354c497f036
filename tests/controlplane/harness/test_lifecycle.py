"""The control plane starts in seconds, can be broken and mended, and never outlives the test run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import OwnControlPlane
from tests.support.kube import KubeRequestError
from tests.support.kube.describe import describe
from tests.support.kube.objects import fake_node, gpu_pod
from tests.support.report import Measured
from tests.support.waiting import eventually

CHECKOUT = Path(__file__).parents[3]
START_SECONDS = 20
TRIES_SECONDS = 150
DEEP = pytest.mark.deep("the one that is killed: tests/controlplane/harness/test_lifecycle.py")
CORE = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]


def test_a_control_plane_is_ready_within_twenty_seconds(
    own_control_plane: OwnControlPlane, measured: Measured
) -> None:
    # The best of some, because other work on the machine can slow down any single start.
    end = time.monotonic() + TRIES_SECONDS
    while time.monotonic() < end:
        plane = own_control_plane()
        measured(f"a control plane of a test's own ready in {plane.start_seconds:.1f} s")
        assert [name for name, process in plane.processes.items() if process.alive] == CORE
        if plane.start_seconds < START_SECONDS:
            return
        plane.stop()
    pytest.fail(f"no start took less than {START_SECONDS} s")


def test_what_is_killed_comes_back_with_its_state(own_control_plane: OwnControlPlane) -> None:
    plane = own_control_plane()
    kube = plane.kube
    kube.create(fake_node(name="node"))
    plane.process("kube-scheduler").kill()
    kube.create(gpu_pod(name="pod", namespace="default"))
    for name in ("etcd", "kube-apiserver"):
        plane.process(name).kill()
    for name in ("etcd", "kube-apiserver"):
        plane.process(name).start()

    pod = kube.get("Pod", "pod", namespace="default")
    assert "nodeName" not in pod["spec"]  # stored before the crash, and nobody was there to place it
    plane.process("kube-scheduler").start()
    eventually(
        lambda: kube.get("Pod", "pod", namespace="default")["status"]["phase"] == "Running",
        deadline=120,
        describe=lambda: describe(kube, namespace="default"),
    )


def test_a_client_has_the_rights_of_its_service_account_and_no_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    nobody = control_plane.client_as(service_account="default", namespace=namespace)
    with pytest.raises(KubeRequestError, match="cannot list resource") as refused:
        nobody.list("Pod", namespace=namespace)
    assert refused.value.code == 403


INNER_TESTS = """
import json, os
from pathlib import Path
from tests.support.waiting import eventually

def test_fails(shared_control_plane):
    assert not shared_control_plane.kube.list("Namespace")

def test_waits_to_be_interrupted(shared_control_plane):
    Path("started").touch()
    eventually(lambda: False, deadline=120)
"""

# As at a terminal: a run in the background may have inherited that SIGINT is ignored.
INNER_PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(["-p", "tests.support.controlplane.fixtures", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("number", "moment", "exit_code"),
    [
        pytest.param(
            signal.SIGINT, "started", pytest.ExitCode.INTERRUPTED, id="Ctrl-C in a test", marks=DEEP
        ),
        pytest.param(
            signal.SIGINT, "starting", pytest.ExitCode.INTERRUPTED, id="Ctrl-C while it starts", marks=DEEP
        ),
        pytest.param(signal.SIGKILL, "started", -signal.SIGKILL, id="SIGKILL"),
    ],
)
def test_nothing_survives_a_test_run(
    tmp_path: Path, number: signal.Signals, moment: str, exit_code: int
) -> None:
    (tmp_path / "test_inner.py").write_text(INNER_TESTS)
    base = tmp_path / "base"
    command = [sys.executable, "-c", INNER_PYTEST, f"--basetemp={base}", "test_inner.py"]
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "deploy" / "local")])
    output = tmp_path / "output"
    with output.open("wb") as file:
        run = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdout=file, stderr=file
        )
    try:

        def has_come() -> bool:
            assert run.poll() is None, output.read_text()
            return (tmp_path / "started").exists() if moment == "started" else bool(processes_of(base))

        eventually(has_come, deadline=150, describe=output.read_text, retry_on=(), interval=0.02)
        before = processes_of(base)
        assert len(before) == len(CORE) if moment == "started" else before
        run.send_signal(number)
        assert run.wait(timeout=120) == exit_code, output.read_text()
    finally:
        run.kill()
        run.wait()
    eventually(lambda: not processes_of(base), deadline=60, describe=lambda: str(processes_of(base)))
    if number == signal.SIGINT:
        assert not list(base.glob("*/data")), "an interrupted run has removed its data"
        log = base / "control-plane0" / "logs" / "etcd.log"
        assert log.exists(), "and has kept the logs"
        if moment == "started":
            assert f"{log}: " in output.read_text(), "and the failed test said where they are"


def processes_of(base: Path) -> list[str]:
    """Command lines of the running control-plane processes whose files are below ``base``."""
    commands = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []  # gone or a zombie: none
        if any(str(base) in word for word in line) and line[0] != sys.executable:
            commands.append(" ".join(line))
    return commands
