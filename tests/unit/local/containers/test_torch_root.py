"""Programs inside the root with PyTorch: what they are given of the machine, and what they are not."""

import io
from pathlib import Path
from typing import Any

import pytest

from tdcs_local import cache
from tdcs_local.containers import torch_packages, torch_root
from tdcs_local.containers.torch_root import Run
from tdcs_local.errors import LocalError
from tdcs_local.kind import images
from tdcs_local.progress import Reporter


def test_a_program_has_namespaces_of_its_own_and_only_the_variables_that_it_is_given() -> None:
    run = Run(command=("python3", "-V"), results=Path("/r"), environment={"OMP_NUM_THREADS": "1"})
    words = torch_root.arguments(run, root=Path("/root-folder"))
    assert {"--mount", "--pid", "--net", "--kill-child=KILL"} <= set(words)
    clean = words[words.index("/usr/bin/env") :]
    assert clean[1] == "-i"
    assert "OMP_NUM_THREADS=1" in clean
    assert clean[-2:] == ["python3", "-V"]


def test_a_program_that_measures_a_link_keeps_the_interfaces_of_its_caller() -> None:
    words = torch_root.arguments(Run(command=("true",), results=Path("/r"), network=True), root=Path("/x"))
    assert "--net" not in words


def test_folders_of_data_are_named_before_the_program() -> None:
    run = Run(command=("true",), results=Path("/r"), data={"profiles": Path("/somewhere")})
    words = torch_root.arguments(run, root=Path("/x"))
    assert "profiles=/somewhere" in words[: words.index("/usr/bin/env")]


def test_the_root_and_the_image_have_the_same_packages() -> None:
    listed = (images.SPECS["train-pytorch"].folder / "packages.txt").read_text().split()
    assert list(torch_root.ROOT.packages) == listed
    assert "python3-torch" in listed


def test_packages_are_a_folder_of_data_that_python_looks_into() -> None:
    run = Run(command=("true",), results=Path("/r"), packages=Path("/fetched"))
    words = torch_root.arguments(run, root=Path("/x"))
    assert "packages=/fetched" in words[: words.index("/usr/bin/env")]
    assert next(word for word in words if word.startswith("PYTHONPATH=")).endswith(":/data/packages")


def test_packages_that_cannot_be_fetched_are_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(*_: Any, **__: Any) -> Path:
        raise LocalError(what="fetching failed", why="no network", remedy="")

    monkeypatch.setattr(cache, "product", product)
    out = io.StringIO()
    assert torch_packages.ensure(reporter=Reporter(stream=out)) is None
    assert "tests with the packages of transformers.txt are skipped" in out.getvalue()
    assert "no network" in out.getvalue()
