"""The container engine: whether it answers, and that it is not stopped under somebody who needs it."""

import io
from pathlib import Path

import pytest

from tdcs_local import cache, docker, host, shell
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, images
from tdcs_local.packaging import sbom
from tdcs_local.progress import Reporter


class Process:
    """A dockerd that remembers whether it was told to end."""

    pid = 1
    ended = False

    def terminate(self) -> None:
        self.ended = True

    def wait(self, timeout: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def dockerd(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(host, "own_engine", lambda: process)
    monkeypatch.setattr(shell, "succeeds", lambda command: True)
    monkeypatch.setattr(docker, "containers", lambda every: [])
    return process


@pytest.mark.parametrize(
    ("why", "state"),
    [
        pytest.param("Got permission denied while trying to connect to the socket", "denied", id="no rights"),
        pytest.param("Cannot connect to the Docker daemon. Is it running?", "absent", id="it does not run"),
        pytest.param("docker is not installed", "absent", id="there is none"),
    ],
)
def test_why_the_engine_does_not_answer(why: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: object, timeout: float) -> str:
        raise LocalError(what="docker version failed", why=why)

    monkeypatch.setattr(shell, "capture", fail)
    assert host.look_at_engine().state == state
    assert not host.engine_answers()


def test_an_engine_that_nobody_uses_is_stopped(dockerd: Process) -> None:
    host.stop_engine(reporter=Reporter(quiet=True))
    assert dockerd.ended


def test_an_engine_is_not_stopped_between_two_uses_of_another_process(dockerd: Process) -> None:
    said = io.StringIO()
    with host.engine_in_use(), host.engine_in_use():  # any number may use it at the same time
        host.stop_engine(reporter=Reporter(stream=said))
    assert not dockerd.ended
    assert "the container engine stays: another process" in said.getvalue()


def test_an_engine_with_a_running_container_stays(dockerd: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "containers", lambda every: ["somebody"])
    said = io.StringIO()
    host.stop_engine(reporter=Reporter(stream=said))
    assert not dockerd.ended
    assert "it runs somebody" in said.getvalue()


def test_who_wants_the_engine_while_it_stops_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    with cache.exclusive(host.ENGINE_LOCK) as alone:
        assert alone

        def stop_waiting() -> None:
            waited.append("told")
            raise InterruptedError

        with pytest.raises(InterruptedError), host.engine_in_use(on_wait=stop_waiting):
            pytest.fail("it was let in")
    assert waited == ["told"]
    with host.engine_in_use(on_wait=stop_waiting):
        assert waited == ["told"]


def test_images_are_made_with_the_engine_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    could_stop: list[bool] = []

    def look(name: str) -> None:
        with cache.exclusive(host.ENGINE_LOCK) as alone:
            could_stop.append(alone)

    monkeypatch.setattr(cluster, "require_own", look)
    monkeypatch.setattr(images, "_loaded", lambda nodes: {})
    assert images.ensure([], reporter=Reporter(quiet=True)) == {}
    assert could_stop == [False]


def test_a_cluster_without_an_engine_is_not_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "engine_answers", lambda: False)
    with pytest.raises(LocalError, match=r"not up: the container engine does not answer.*\n.*make up"):
        images.ensure([], reporter=Reporter(quiet=True))


def test_a_bill_of_materials_starts_the_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[bool] = []
    monkeypatch.setattr(host, "start_engine", lambda *, reporter: started.append(True))
    sbom.write_all([], folder=tmp_path, reporter=Reporter(quiet=True))
    assert started
