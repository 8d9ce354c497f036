"""The code of an artifact has no instruction that its target lacks."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.compile.conftest import Compile
from tests.compile.models import lenet

REGISTERS = {"ymm": re.compile(r"%ymm\d"), "zmm": re.compile(r"%zmm\d|\{%k[1-7]\}")}


def used(library: Path) -> set[str]:
    """Which kinds of wide registers a library's code uses."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True
    ).stdout
    return {kind for kind, pattern in REGISTERS.items() if pattern.search(text)}


@pytest.mark.parametrize(
    ("target", "registers"),
    [("x86-64", set()), ("x86-64-v2", set()), ("x86-64-v3", {"ymm"})],
)
def test_no_register_is_used_that_the_target_lacks(
    target: str, registers: set[str], compiled: Compile
) -> None:
    for backends in ([], ["onednn", "blas"]):
        outcome = compiled(lenet(), backends=backends, target=target)
        assert used(Path(outcome.location, outcome.manifest.library.name)) <= registers, backends
    plain = compiled(lenet(), backends=[], target=target)
    assert used(Path(plain.location, plain.manifest.library.name)) == registers
