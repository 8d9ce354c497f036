"""The image's entrypoint: what it starts, what it refuses, and that it never empties a journal.

Java is a script here that prints its command line; the engine tier runs the real one through the same entrypoint.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.waiting import eventually

ENTRYPOINT = Path(__file__).resolve().parents[3] / "deploy" / "images" / "alluxio" / "entrypoint.sh"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A pod's environment, with a java that only says how it was called."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$$" "$@" >>"$CALLS"\necho --- >>"$CALLS"\n${JAVA_DOES:-true}\n'
    )
    java.chmod(0o755)
    properties = tmp_path / "alluxio-site.properties"
    properties.write_text("")
    return {
        "PATH": os.environ["PATH"],
        "CALLS": str(tmp_path / "calls"),
        "JAVA_HOME": str(tmp_path / "jdk"),
        "ALLUXIO_HOME": "/opt/alluxio",
        "ALLUXIO_DATA": str(tmp_path / "data"),
        "ALLUXIO_PROPERTIES_FILE": str(properties),
        "ALLUXIO_MASTER_HOSTNAME": "default-master",
        "ALLUXIO_JAVA_OPTS": "-Xmx1g  -Dx=*",
        "ALLUXIO_HOSTNAME": "default-worker-n1-0",
        "NODE_NAME": "n1",
        "FUSE_MOUNT_POINT": str(tmp_path / "fuse"),
        "FUSE_OPTIONS": "ro,allow_other",
    }


def run(environment: dict[str, str], role: str) -> subprocess.CompletedProcess[str]:
    """Run the entrypoint to its end."""
    return subprocess.run([ENTRYPOINT, role], env=environment, capture_output=True, text=True, timeout=60)


def calls(environment: dict[str, str]) -> list[list[str]]:
    """The command lines of java, each without its process id."""
    text = Path(environment["CALLS"]).read_text() if Path(environment["CALLS"]).exists() else ""
    return [call.splitlines()[1:] for call in text.split("---\n") if call]


def test_a_master_formats_an_empty_journal_and_then_starts(environment: dict[str, str]) -> None:
    assert run(environment, "master").returncode == 0
    formatted, started = calls(environment)
    assert formatted[-2:] == ["alluxio.cli.Format", "master"]
    assert started[-1] == "alluxio.master.AlluxioMaster"
    assert started[:2] == ["-Xmx1g", "-Dx=*"]
    assert "-Dalluxio.master.hostname=default-master" in started
    assert started[-3:-1] == ["-cp", "/opt/alluxio/lib/*:/opt/alluxio/names/*"]


@pytest.mark.parametrize(("entry", "formats"), [("BlockMaster", 0), ("lost+found", 1)])
def test_a_journal_that_holds_something_is_never_formatted(
    environment: dict[str, str], entry: str, formats: int
) -> None:
    (Path(environment["ALLUXIO_DATA"]) / "journal" / entry).mkdir(parents=True)
    run(environment, "master")
    assert len([call for call in calls(environment) if "alluxio.cli.Format" in call]) == formats


def test_a_worker_is_known_by_its_host_and_its_node(environment: dict[str, str]) -> None:
    assert run(environment, "worker").returncode == 0
    (call,) = calls(environment)
    assert call[-1] == "alluxio.worker.AlluxioWorker"
    assert "-Dalluxio.worker.hostname=default-worker-n1-0" in call
    assert "-Dalluxio.locality.node=n1" in call


def test_java_takes_the_place_of_the_shell_so_that_signals_reach_it(environment: dict[str, str]) -> None:
    environment["JAVA_DOES"] = "sleep 60"
    with subprocess.Popen([ENTRYPOINT, "worker"], env=environment) as process:
        eventually(lambda: calls(environment), deadline=60)
        assert Path(environment["CALLS"]).read_text().splitlines()[0] == str(process.pid)
        process.kill()


def test_a_fuse_client_mounts_where_it_is_told_and_its_exit_status_is_passed_on(
    environment: dict[str, str],
) -> None:
    environment["JAVA_DOES"] = "exit 3"
    assert run(environment, "fuse").returncode == 3
    (call,) = calls(environment)
    options = call[call.index("alluxio.fuse.AlluxioFuse") + 1 :]
    assert options == ["-m", environment["FUSE_MOUNT_POINT"], "-a", "/", "-o", "ro,allow_other"]
    assert Path(environment["FUSE_MOUNT_POINT"]).is_dir()


def test_a_fuse_client_is_told_to_end_and_waited_for(environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "client"
    ready, end = tmp_path / "ready", tmp_path / "end"
    lines = (f"trap 'echo unmounted >{end}; exit 0' TERM", f">{ready}", "while :; do sleep 0.1; done")
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    # as a pod's runtime does it, the signal goes to the first process alone
    (tmp_path / "jdk" / "bin" / "java").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$$" "$@" >>"$CALLS"\nexec {script}\n'
    )
    with subprocess.Popen([ENTRYPOINT, "fuse"], env=environment) as process:
        eventually(ready.exists, deadline=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert end.read_text() == "unmounted\n"


def test_a_fuse_client_that_was_killed_is_started_again_unless_it_died_young(
    environment: dict[str, str],
) -> None:
    environment["JAVA_DOES"] = "sleep 60"

    def clients() -> list[int]:
        text = Path(environment["CALLS"]).read_text() if Path(environment["CALLS"]).exists() else ""
        return [int(call.split("\n", 1)[0]) for call in text.split("---\n") if call]

    for young, ends in (("0", False), ("3600", True)):
        Path(environment["CALLS"]).unlink(missing_ok=True)
        environment["FUSE_YOUNG_SECONDS"] = young
        with subprocess.Popen([ENTRYPOINT, "fuse"], env=environment) as process:
            (first,) = eventually(clients, deadline=60)
            os.kill(first, signal.SIGKILL)
            if ends:
                assert process.wait(timeout=60) == 137
            else:
                eventually(lambda: len(clients()) == 2, deadline=60)
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=60) == 143
        assert len(clients()) == (1 if ends else 2)


@pytest.mark.parametrize(
    ("role", "missing", "words"),
    [
        ("master", "ALLUXIO_MASTER_HOSTNAME", "ALLUXIO_MASTER_HOSTNAME is not set"),
        ("worker", "NODE_NAME", "NODE_NAME is not set"),
        ("fuse", "FUSE_MOUNT_POINT", "FUSE_MOUNT_POINT is not set"),
        ("janitor", "", "say what to run: master, worker or fuse"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    environment: dict[str, str], role: str, missing: str, words: str
) -> None:
    environment.pop(missing, None)
    done = run(environment, role)
    assert done.returncode == 64
    assert words in done.stderr
    assert calls(environment) == []


def test_settings_that_are_not_there_are_named(environment: dict[str, str], tmp_path: Path) -> None:
    environment["ALLUXIO_PROPERTIES_FILE"] = str(tmp_path / "nowhere" / "alluxio-site.properties")
    done = run(environment, "master")
    assert done.returncode == 64
    assert f"cannot read {tmp_path}/nowhere/alluxio-site.properties" in done.stderr
