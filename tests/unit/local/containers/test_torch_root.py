"""Programs inside the root with PyTorch: what they are given of the machine, and what they are not."""

from pathlib import Path

from tdcs_local.containers import torch_root
from tdcs_local.containers.torch_root import Run
from tdcs_local.kind import images


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
