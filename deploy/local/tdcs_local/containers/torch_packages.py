"""What tests of training have next to the packages of the root with PyTorch: `transformers`, for its models.

They are a lock of their own, kept in the cache by it, and only tests need them: where they cannot be had, the tests
that do are skipped.
"""

import sys
from pathlib import Path

from tdcs_local import cache, shell
from tdcs_local.containers import torch_root
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter

LOCK = CHECKOUT / "locks" / "transformers.txt"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")

OTHER_MODELS = r"transformers/models/(?!(auto|bert|gpt2|vit|llama|distilbert|t5)/)"


def ensure(*, reporter: Reporter) -> Path | None:
    """The folder of the packages, made now unless it is cached; None where they cannot be had."""

    def build(scratch: Path) -> None:
        folder = scratch / "packages"
        with reporter.step("the packages of tests of training"):
            failure = "the packages of tests of training could not be fetched"
            log = log_file("torch-packages")
            pip: list[str | Path] = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
            ]
            pip += ["--retries", "3", "--no-deps", "--no-compile"]
            pip += ["--only-binary", ":all:", "--python-version", torch_root.PYTHON, "--require-hashes"]
            pip += [word for platform in PLATFORMS for word in ("--platform", platform)]
            shell.run([*pip, "--target", folder, "-r", LOCK], what=failure, log=log)
            # What tests import of it: all of its models would take minutes.
            compiling = torch_root.Run(
                command=("python3", "-m", "compileall", "-q", "-x", OTHER_MODELS, torch_root.RESULTS),
                results=folder,
            )
            root = torch_root.ensure_folder(reporter=reporter)
            shell.run(torch_root.arguments(compiling, root=root), what=failure, log=log)

    try:
        key = cache.digest([LOCK.read_bytes(), torch_root.ROOT.key()])
        return cache.product("torch-packages", key, build, keep=2) / "packages"
    except LocalError as error:
        reporter.say(f"tests with the packages of {LOCK.name} are skipped: {error}")
        return None
