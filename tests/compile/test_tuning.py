"""Tuning TVM's own code: within its budget, with records that are kept and used again, or refused in one sentence."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.compile.models import Network
from tests.compile.test_commands import refused, run

from tdcs_train.artifacts.manifest import TuningSpec
from tdcs_train.compile import tuning
from tdcs_train.compile.job import compile_model

TARGET = "x86-64-v2"
NO_TIME = "0.00001"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for a model of one part, with a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    net = Network(1)
    onnx.save(net.model({"x": [4, 64]}, [net.op("Relu", net.dense("x", 64, 64))]), tmp_path / "one.onnx")
    np.savez(tmp_path / "batch.npz", x=np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32))
    return ["compile", str(tmp_path / "one.onnx"), "--target", TARGET, "-o", str(tmp_path / "out")]


def records(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "tdcs-train" / "tuning").glob("*/database_tuning_record.json"))


@pytest.fixture
def interrupted(words: list[str], tmp_path: Path) -> int:
    """The number of records of a tuning that was interrupted when it had one."""
    # Where this runs in the background of a shell, its children ignore the signal.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "tdcs_train.cli", *words, "--tune", "30"],
        env=os.environ,
    )
    try:
        until = time.monotonic() + 200
        while not (files := records(tmp_path)) or not files[0].stat().st_size:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert not (tmp_path / "out").exists()
    return len(files[0].read_text().splitlines())


def test_an_interrupted_tuning_keeps_its_records_and_a_second_begins_with_them(
    words: list[str], interrupted: int, tmp_path: Path
) -> None:
    done = run(*words, "--tune", NO_TIME, "--check", str(tmp_path / "batch.npz"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("tuned: ")
    assert " ms untuned, " in lines[1]
    assert " times as fast" in lines[1]
    assert f"and {interrupted} of before" in lines[1]
    assert lines[2].startswith(("compared with host code: ", "run once: "))
    (folder,) = (tmp_path / "out").iterdir()
    spec = json.loads((folder / "manifest.json").read_text())["tuning"]
    assert (spec["parts"], spec["earlier_trials"]) == (1, interrupted)
    document = json.loads((folder / spec["records"]["name"]).read_text())
    assert len(document["records"]) == 1

    records(tmp_path)[0].unlink()
    elsewhere = [*words[:-1], str(tmp_path / "other"), "--records", str(folder / spec["records"]["name"])]
    again = run(*elsewhere, "--tune", NO_TIME, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["manifest"]["tuning"]["earlier_trials"] == 1


def test_a_budget_that_is_over_before_the_first_trial_is_said(words: list[str], tmp_path: Path) -> None:
    refused(run(*words, "--tune", NO_TIME), "were over before the first trial", "Give it more minutes")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_tuned_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(run(*words, "--tune", "1", "--runtime", "onnxruntime"), "--tune is for TVM's own code")
    refused(run(*words, "--records", "x.json"), "--records without --tune")
    monkeypatch.setenv("TDCS_TRAIN_TARGET", "x86-64")
    refused(run(*words, "--tune", "1"), f"this node cannot run {TARGET}")
    monkeypatch.delenv("TDCS_TRAIN_TARGET")
    net = Network(1)
    onnx.save(net.model({"x": ["N", 8]}, [net.dense("x", 8, 4)]), tmp_path / "one.onnx")
    refused(run(*words, "--tune", "1"), "the input x has an open one")


def test_records_that_are_damaged_or_of_another_model_are_refused(
    words: list[str], interrupted: int, tmp_path: Path
) -> None:
    assert interrupted
    made = run(*words, "--tune", NO_TIME, "--json")
    assert made.returncode == 0, made.stderr
    outcome = json.loads(made.stdout)
    file = Path(outcome["location"]) / outcome["manifest"]["tuning"]["records"]["name"]
    document = json.loads(file.read_text())
    other = tmp_path / "records.json"
    tune = [*words[:-1], str(tmp_path / "other"), "--tune", NO_TIME, "--records", str(other)]

    ((part, row),) = document["records"]
    ((name, code),) = document["workloads"]
    refusals = {
        "has no records of tuning": "[1]",
        "of another model": {**document, "origin": {**document["origin"], "model": "0" * 64}},
        "of another version of TVM": {**document, "origin": {**document["origin"], "tvm": "0.1"}},
        "its record 0 has no part of the model": {**document, "records": [[part + 1, row]]},
        "cannot read its records": {**document, "workloads": [[name, code[: len(code) // 2]]]},
    }
    records(tmp_path)[0].unlink()
    for message, content in refusals.items():
        other.write_text(content if isinstance(content, str) else json.dumps(content))
        refused(run(*tune), message)
    # Nothing of them has stayed: the records that are right are taken in.
    other.write_text(json.dumps(document))
    done = run(*tune, "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)["manifest"]
    assert manifest["tuning"]["earlier_trials"] == 1
    assert manifest["key"] != outcome["manifest"]["key"]
    assert len(manifest["options"]["records"]) == 64


def test_a_tuning_that_kept_untuned_code_is_tried_again(
    words: list[str], interrupted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interrupted
    for gain, builds in ((0.5, True), (0.5, False), (2.0, True), (2.0, False)):
        speeds = tuning.Speeds(untuned=1.0, tuned=1 / gain, gain=gain)
        monkeypatch.setattr(tuning, "compared", lambda *_, speeds=speeds: speeds)
        outcome = compile_model(
            words[1], target=TARGET, backends=(), output=str(tmp_path / "out"), tune=float(NO_TIME)
        )
        assert isinstance(outcome.manifest.tuning, TuningSpec)
        assert (outcome.built, outcome.manifest.tuning.gain) == (builds, gain)
        assert (outcome.manifest.options.get("kept") == "untuned") == (gain < 1)
