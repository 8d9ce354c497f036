"""A process that has lost its Lease begins again in its place, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.programs.ports import free_ports

from tdcs.kube.lease_loss import FAILURES, VARIABLE, earlier_failures, lease_losses

PROGRAM = """
import os, pathlib, socket, subprocess, sys, threading

from tdcs.kube.lease_loss import lease_losses, replace_process

losses = lease_losses(os.environ)
log = pathlib.Path(sys.argv[1])
print(os.getpid(), losses, len(os.listdir("/proc/self/fd")), *sys.argv[2:])
if losses == 3:
    sys.exit()
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))  # free again, each time
child = subprocess.Popen(["sleep", "1000"])
(log.parent / f"child-{losses}").write_text(str(child.pid))
written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
working = threading.Event()

def work():
    while True:
        os.write(written, f"{losses}\\n".encode())
        working.set()

threading.Thread(target=work).start()
working.wait()
replace_process(losses=losses + 1)
"""


def test_it_has_its_id_and_command_line_and_nothing_else_that_it_had(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    log = tmp_path / "log"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log), str(port)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    runs = [line.split() for line in ran.stdout.splitlines()]
    pids, losses, descriptors, ports = zip(*runs, strict=True)
    assert len(set(pids)) == 1
    assert losses == ("0", "1", "2", "3")
    assert len(set(descriptors)) == 1
    assert set(ports) == {str(port)}
    children = [int((tmp_path / f"child-{number}").read_text()) for number in range(3)]
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    written = log.read_text().splitlines()
    assert written == sorted(written)  # none wrote once the next one had begun


STOPPED = """
import os, signal, sys, time

from tdcs.kube.lease_loss import hear_signals, lease_losses, replace_process

if not lease_losses(os.environ):
    replace_process(losses=1)
print("begins again", flush=True)
sys.stdin.readline()  # as long as it loads its modules
hear_signals()
print("works", flush=True)
time.sleep(100)
"""


@pytest.mark.failure_mode("operator-stopped-while-restarting")
def test_a_process_that_is_asked_to_end_while_it_begins_again_ends_in_order() -> None:
    """The first process of a container would not hear it, and be killed half a minute later."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begins again\n"
        process.terminate()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize(
    ("variable", "losses"), [(None, 0), ("", 0), ("0", 0), ("12", 12), ("-1", 0), ("many", 0)]
)
def test_the_next_process_knows_how_often_it_was_lost(variable: str | None, losses: int) -> None:
    assert lease_losses({} if variable is None else {VARIABLE: variable}) == losses


@pytest.mark.parametrize(
    ("variable", "counts"),
    [
        (None, {}),
        ("", {}),
        ("[1]", {}),
        ('{"Dataset": 3, "queue": 1}', {"Dataset": 3, "queue": 1}),
        ('{"Dataset": "3", "queue": -1}', {}),
    ],
)
def test_the_next_process_knows_what_had_failed(variable: str | None, counts: dict[str, int]) -> None:
    assert earlier_failures({} if variable is None else {FAILURES: variable}) == counts
