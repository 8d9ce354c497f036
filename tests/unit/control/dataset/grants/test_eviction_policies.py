"""Eviction policies of other packages are found by their entry points."""

import logging
from pathlib import Path

import pytest

from tdcs.control.dataset.installed_policies import installed_policies
from tdcs.decide.cache.eviction_order import EvictionCandidate, lru

MODULE = """
def largest(candidate):
    return -candidate.held_bytes

def failing(candidate):
    raise RuntimeError("no idea")

def endless(candidate):
    return float("nan")

def textual(candidate):
    return "soon"
"""


def install(folder: Path, points: dict[str, str]) -> None:
    """A package as pip leaves it in a folder of Python's path."""
    (folder / "house_rules.py").write_text(MODULE)
    metadata = folder / "house_rules-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: house-rules\nVersion: 1.0\n")
    lines = [f"{name} = {place}" for name, place in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[tdcs.eviction_policies]", *lines, ""]))


def test_the_shipped_policies_are_there_and_those_of_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, {"Largest": "house_rules:largest"})
    assert installed_policies().keys() == {"LRU", "LRFU", "NextUse"}
    monkeypatch.syspath_prepend(tmp_path)
    policies = installed_policies()
    assert policies.keys() == {"LRU", "LRFU", "NextUse", "Largest"}
    assert policies["LRU"] is lru
    small, large = (
        EvictionCandidate(name="", held_bytes=size, last_used=0.0, uses=[]) for size in (1.0, 9.0)
    )
    assert policies["Largest"](large) < policies["Largest"](small)  # the largest leaves first


@pytest.mark.parametrize("place", ["house_rules:absent", "no_such_module:largest"])
def test_a_policy_that_cannot_be_loaded_is_left_out_with_a_line_in_the_log(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, {"Broken": place, "Largest": "house_rules:largest"})
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level(logging.ERROR):
        policies = installed_policies()
    assert policies.keys() == {"LRU", "LRFU", "NextUse", "Largest"}
    assert f"the eviction policy Broken ({place}) cannot be loaded" in caplog.text


@pytest.mark.parametrize("function", ["failing", "endless", "textual"])
def test_a_policy_that_fails_goes_by_the_last_use_and_is_logged_once(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, {"Wrong": f"house_rules:{function}"})
    monkeypatch.syspath_prepend(tmp_path)
    policy = installed_policies()["Wrong"]
    with caplog.at_level(logging.ERROR):
        assert [
            policy(EvictionCandidate(name="", held_bytes=1.0, last_used=time)) for time in (3.0, 4.0)
        ] == [
            3.0,
            4.0,
        ]
    assert [record.getMessage() for record in caplog.records] == [
        "the eviction policy Wrong failed; Datasets with it go by their last use"
    ]
