"""The Python environment with TVM in which models are compiled here: the test tier `compile` and its benchmarks.

It is made from a lock of its own, since TVM is 100 MB that nothing else needs, and kept in the cache by that lock.
"""

import os
import shutil
import sys
from pathlib import Path

from tdcs_local import cache, host, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter

LOCK = CHECKOUT / "locks" / "compile-tests.txt"
FILES = {
    "g++": "/usr/bin/g++",
    "libdnnl-dev": "/usr/include/oneapi/dnnl/dnnl.hpp",
    "libopenblas-dev": "/usr/include/x86_64-linux-gnu/cblas.h",
}
"""A file of each Debian package that compiling needs."""


def ensure(*, reporter: Reporter) -> Path:
    """The environment's Python; made now unless it is cached."""
    packages = [name for name, file in FILES.items() if not Path(file).exists()]
    host.require_packages(packages, reporter=reporter)

    def build(scratch: Path) -> None:
        with reporter.step("the Python environment with TVM"):
            failure, log = (
                "the Python environment with TVM could not be made",
                log_file("compile-environment"),
            )
            shell.run([sys.executable, "-m", "venv", scratch / "env"], what=failure, log=log)
            pip: list[str | Path] = [
                scratch / "env" / "bin" / "python",
                "-m",
                "pip",
                "install",
                "-q",
                "--retries",
                "10",
            ]
            command: list[str | Path] = [*pip, "--disable-pip-version-check", "--require-hashes", "-r", LOCK]
            shell.run(command, what=failure, log=log, fetches=True)

    key = cache.digest([LOCK.read_bytes(), sys.version])
    waiting = "another process makes the Python environment with TVM: waiting"
    folder = cache.product("compile-environment", key, build, on_wait=lambda: reporter.say(waiting), keep=2)
    python = folder / "env" / "bin" / "python"
    if shutil.which(str(python)) is None:
        raise LocalError(
            what="the Python environment with TVM is damaged",
            why=f"{python} does not run",
            remedy=f"remove {folder} and run again",
        )
    return python


def environment() -> dict[str, str]:
    """The variables of a program that runs in the environment with this checkout's packages."""
    path = os.pathsep.join(
        str(folder) for folder in (CHECKOUT / "training", CHECKOUT / "deploy" / "local", CHECKOUT)
    )
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
