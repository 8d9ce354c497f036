"""Products in the cache: keys, interruption, builds at the same time."""

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tdcs_local import cache
from tdcs_local.errors import LocalError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_key_knows_the_borders_between_its_parts() -> None:
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])
    assert cache.digest(["ab", b"c"]) == cache.digest([b"ab", "c"])


def test_a_key_changes_with_a_files_name_content_or_being_executable(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    keys = [cache.files_digest(tmp_path, [file])]
    file.chmod(0o755)
    keys.append(cache.files_digest(tmp_path, [file]))
    file.write_text("y")
    keys.append(cache.files_digest(tmp_path, [file]))
    renamed = file.rename(tmp_path / "b")
    keys.append(cache.files_digest(tmp_path, [renamed]))
    assert len(set(keys)) == 4


def test_a_product_is_built_once() -> None:
    calls: list[Path] = []

    def build(scratch: Path) -> None:
        calls.append(scratch)
        (scratch / "program").write_text("hello")

    first = cache.product("thing", "key", build)
    second = cache.product("thing", "key", build)
    assert first == second
    assert (second / "program").read_text() == "hello"
    assert len(calls) == 1


def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(own_cache: Path) -> None:
    def fail(scratch: Path) -> None:
        (scratch / "half").write_text("")
        raise LocalError(what="no")

    with pytest.raises(LocalError, match="no"):
        cache.product("thing", "key", fail)
    assert list((own_cache / "products" / "thing").iterdir()) == []
    folder = cache.product("thing", "key", lambda scratch: (scratch / "whole").touch())
    assert [file.name for file in folder.iterdir()] == ["whole"]


def _build_until_told(started: Event) -> None:
    def build(scratch: Path) -> None:
        (scratch / "half").touch()
        started.set()
        time.sleep(60)

    cache.product("thing", "key", build)


def test_a_killed_build_leaves_no_lock_and_no_half_product(own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    started = context.Event()
    builder = context.Process(target=_build_until_told, args=(started,))
    builder.start()
    assert started.wait(60)
    assert builder.pid is not None
    os.kill(builder.pid, signal.SIGKILL)
    builder.join()

    folder = cache.product("thing", "key", lambda scratch: (scratch / "whole").touch())
    assert [file.name for file in folder.iterdir()] == ["whole"]
    assert [entry.name for entry in (own_cache / "products" / "thing").iterdir()] == ["key"]


def test_a_second_builder_waits_and_takes_what_the_first_made() -> None:
    waited: list[bool] = []
    context = multiprocessing.get_context("fork")
    started, go_on = context.Event(), context.Event()

    def slowly(scratch: Path) -> None:
        started.set()
        assert go_on.wait(60)
        (scratch / "by-the-first").touch()

    first = context.Process(target=lambda: cache.product("thing", "key", slowly))
    first.start()
    assert started.wait(60)

    def on_wait() -> None:
        waited.append(True)
        go_on.set()

    folder = cache.product(
        "thing", "key", lambda scratch: (scratch / "by-the-second").touch(), on_wait=on_wait
    )
    first.join()
    assert waited == [True]
    assert [file.name for file in folder.iterdir()] == ["by-the-first"]


def test_a_lock_that_is_not_released_in_time_is_named() -> None:
    with cache.locked("busy"), pytest.raises(LocalError) as caught, cache.locked("busy", timeout=0.05):
        pass
    assert "busy" in str(caught.value)
    assert "run again" in str(caught.value)


def test_old_versions_go_but_never_the_current_one() -> None:
    versions = [(4.0, "d"), (1.0, "current"), (3.0, "c"), (2.0, "b")]
    assert cache.outdated(versions, current="current", keep=3) == ["b"]
    assert cache.outdated(versions, current="current", keep=1) == ["d", "c", "b"]
    assert cache.outdated([(1.0, "current")], current="current") == []


def test_a_cache_that_cannot_be_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(LocalError) as caught:
        cache.product("thing", "key", lambda scratch: None)
    assert "TDCS_CACHE" in str(caught.value)
