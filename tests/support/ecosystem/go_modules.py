"""Programs and files of other projects, from their Go modules. A test that lacks one is skipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tdcs_local import programs


def fetches() -> bool:
    """Whether what is missing is fetched and built (`make ecosystem`), rather than its tests skipped."""
    return bool(os.environ.get("TDCS_ECOSYSTEM"))


def module_folder(program: str, *, module: str) -> Path:
    """The folder of a program's Go module, in the version that its go.mod names."""
    if shutil.which("go") is None:
        pytest.skip(f"there is no go to ask for the module {module}")
    answer = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=programs.go_folder(program),
        env={
            **os.environ,
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "local",
            **({} if fetches() else {"GOPROXY": "off"}),
        },
        check=False,
        capture_output=True,
        text=True,
    )
    module_facts = json.loads(answer.stdout or "{}")
    if not module_facts.get("Dir"):
        assert not fetches(), (
            f"the module {module} cannot be fetched: {answer.stderr or module_facts.get('Error')}"
        )
        pytest.skip(f"the module {module} is not in Go's cache: make ecosystem fetches it")
    return Path(module_facts["Dir"])


def manager_program(name: str) -> Path:
    """A manager's binary."""
    folder = programs.ensure(name) if fetches() else programs.cached(name)
    if folder is None:
        pytest.skip(f"the manager of {name} is not built: make ecosystem builds it, in minutes")
    return folder / name
