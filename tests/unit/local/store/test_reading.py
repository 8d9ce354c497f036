"""What the demo ends with: a bucket read directly and with TDCS, by the same script."""

import importlib.util
import json
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.programs.ports import free_ports

from tdcs_local.errors import LocalError
from tdcs_local.store import reading
from tdcs_local.store.reading import Comparison, Reading, reading_of, summary


def printed(*, images: int, began: float, ended: float) -> str:
    return json.dumps({"images": images, "bytes": 100 * images, "began": began, "ended": ended}) + "\n"


def test_what_pods_read_together_counts_from_the_first_to_the_last() -> None:
    found = reading_of(
        [printed(images=30, began=10, ended=14), "a warning\n" + printed(images=20, began=11, ended=20)]
    )
    assert found == Reading(images=50, bytes=5000, seconds=10)
    assert found.images_per_second == 5


@pytest.mark.parametrize("log", ["", "Traceback\nboom", "\n"])
def test_a_pod_without_a_result_is_an_error_with_its_log(log: str) -> None:
    with pytest.raises(LocalError, match="printed no result"):
        reading_of([printed(images=1, began=0, ended=1), log])


def test_the_last_lines_have_both_rates_their_ratio_and_what_the_load_took() -> None:
    direct, cached = Reading(images=1600, bytes=1, seconds=8), Reading(images=1600, bytes=1, seconds=0.5)
    text = summary(Comparison(direct=direct, cached=cached, load_seconds=12.3))
    assert " ".join(text.splitlines()) == (
        "2 pods read 200 images a second directly from the bucket, 8.0 s in all, and 3,200 a second with TDCS: 16.0 "
        "times as many. The load before took 12 s: these images were on the nodes' disks or in their page cache "
        "already. The first read of a bucket gains nothing by that, every later one does."
    )


def test_both_jobs_differ_in_where_they_read_and_who_places_them_only() -> None:
    one, other = (reading._job("j", namespace="n", image="i", claim=claim) for claim in ("", "pictures"))
    first, second = (job["spec"]["template"]["spec"] for job in (one, other))
    assert first["containers"][0]["args"][:2] == ["--bucket", "pictures"]
    assert second["containers"][0]["args"][:2] == ["--data", "/data"]
    assert (first.get("schedulerName"), second["schedulerName"]) == (None, "tdcs-scheduler")
    assert first["containers"][0]["resources"] == second["containers"][0]["resources"]
    assert first["affinity"] == second["affinity"]
    assert first["containers"][0]["args"][-2:] == second["containers"][0]["args"][-2:] == ["--meet", "j-0.j"]
    # Whoever reads the Dataset needs no keys of the store.
    assert second["containers"][0]["env"] == []
    assert "persistentVolumeClaim" not in json.dumps(first)


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_images", reading.SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(("index", "images"), [("0", 2), ("1", 1)])
def test_pods_share_out_the_images_of_a_folder(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    index: str,
    images: int,
) -> None:
    (tmp_path / "class").mkdir()
    for name in ("a", "b", "class/c"):
        (tmp_path / name).write_bytes(b"12345")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    monkeypatch.setattr(sys, "argv", ["read_images.py", "--data", str(tmp_path), "--pods", "2"])
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["bytes"]) == (images, 5 * images)
    assert found["ended"] >= found["began"]


@pytest.mark.parametrize("index", ["two", "-1", "2", ""])
def test_an_index_that_no_pod_has_is_refused_in_a_sentence(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    monkeypatch.setattr(sys, "argv", ["read_images.py", "--data", str(tmp_path), "--pods", "2"])
    with pytest.raises(SystemExit, match=r"the variable JOB_COMPLETION_INDEX is .* from 0 to 1"):
        script.main()


def test_keys_of_a_bucket_that_are_not_set_are_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(SystemExit, match="the variable AWS_SECRET_ACCESS_KEY is not set"):
        script.keys_of()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert script.keys_of() == {"access_key_id": "key", "secret_access_key": "secret"}


@pytest.mark.parametrize("first", [0, 1])
def test_pods_that_start_apart_begin_together(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(script, "MEETING_PORT", free_ports(1)[0])
    went: dict[int, float] = {}

    def run(pod: int) -> None:
        script.meet("127.0.0.1", pod=pod, pods=3)
        went[pod] = time.monotonic()

    pods = [threading.Thread(target=run, args=(pod,)) for pod in range(3)]
    pods[first].start()
    pods[2].start()
    time.sleep(0.3)
    assert not went
    came = time.monotonic()
    pods[1 - first].start()
    for pod in pods:
        pod.join(30)
    assert min(went.values()) >= came


@pytest.mark.parametrize("pod", [0, 1])
def test_a_pod_that_does_not_come_ends_the_wait_with_a_sentence(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, pod: int
) -> None:
    port = free_ports(1)[0]
    monkeypatch.setattr(script, "MEETING_PORT", port)
    monkeypatch.setattr(script, "MEETING_SECONDS", 0.3)
    with pytest.raises(SystemExit, match=f"not all of the 2 pods came to 127.0.0.1:{port} in 0 s: "):
        script.meet("127.0.0.1", pod=pod, pods=2)
