"""Images that are pulled where a registry has them, and made here otherwise: found by trying, and then kept to.

What was pulled is written into the cache, so that every command names the same image without asking a registry. Where
nothing could be pulled, the image is made here, and its presence ends the trying. ``TDCS_PULL=0`` has nothing pulled.
"""

import os
from pathlib import Path

from tdcs_local import cache, docker, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import cache_root, log_file
from tdcs_local.progress import Reporter

VARIABLE = "TDCS_PULL"
PATIENCE_SECONDS = 900.0
"""A pull that takes longer is given up: by then the programs could be built."""


def allowed() -> bool:
    """Whether the user has not forbidden it."""
    return os.environ.get(VARIABLE, "") not in {"0", "no", "false"}


def chosen(reference: str) -> bool:
    """Whether the image was pulled at some time, and is what all commands use since."""
    return allowed() and _mark(reference).exists()


def ensure(reference: str, *, instead: str, reporter: Reporter) -> bool:
    """Pull an image unless it is there; whether it is there now. The line that is said tells what comes `instead`."""
    if not allowed():
        return False
    mark = _mark(reference)
    if not docker.image_id(reference):
        try:
            _pull(reference, reporter=reporter, timeout=PATIENCE_SECONDS)
        except LocalError as error:
            mark.unlink(missing_ok=True)
            lines = error.why.splitlines() or [error.what]
            reporter.say(f"no registry gave {reference} ({lines[-1]}): {instead}")
            return False
    cache.make_folder(mark.parent)
    mark.touch()
    return True


def require(reference: str, *, reporter: Reporter, remedy: str) -> None:
    """Pull an image that the user named, unless it is there.

    Raises:
        LocalError: No registry gave it.
    """
    if not docker.image_id(reference):
        _pull(reference, reporter=reporter, remedy=remedy)


def _pull(reference: str, *, reporter: Reporter, timeout: float | None = None, remedy: str = "") -> None:
    with reporter.step(f"pull {reference}"):
        shell.run(
            ["docker", "pull", "--quiet", reference],
            what=f"pulling {reference} failed",
            log=log_file("docker-pull"),
            remedy=remedy,
            timeout=timeout,
        )


def _mark(reference: str) -> Path:
    return cache_root() / "pulled" / cache.digest([reference])
