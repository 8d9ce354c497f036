"""The files of a release that was made before this checkout, for tests that upgrade from it.

They are made of the release's own commit, by its own `make package`, once: they stay in the cache.
"""

import shutil
from pathlib import Path

from tdcs_local import cache, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter

URL = "https://example.com/releases"
"""A placeholder: these files are not published."""


def ensure(revision: str = "", *, reporter: Reporter) -> Path:
    """The folder with the files of a release, as `make package` writes them.

    Args:
        revision: tag or commit of the release; "" for the last tag before HEAD.

    Raises:
        LocalError: There is no such commit or tag, or its files could not be made.
    """
    commit = commit_of(revision or last_tag())

    def build(scratch: Path) -> None:
        tree = scratch / "checkout"
        log = log_file("last-release")
        log.unlink(missing_ok=True)
        with reporter.step(f"package the release of {commit[:12]}") as step:
            step.detail = lambda: (shell.tail(log, lines=1) or "")[:60]
            _git("clone", "--quiet", "--shared", "--no-checkout", str(CHECKOUT), str(tree))
            _git("-C", str(tree), "checkout", "--quiet", "--detach", commit)
            shell.run(
                ["make", "--no-print-directory", "package", f"RELEASE_URL={URL}"],
                what=f"the release of {commit[:12]} could not be packaged",
                log=log,
                cwd=tree,
            )
        for made in (tree / ".local" / "release").iterdir():
            made.rename(scratch / made.name)
        shutil.rmtree(tree)

    return cache.product("release", commit, build, keep=2)


def last_tag() -> str:
    """The tag of the last release before HEAD.

    Raises:
        LocalError: The checkout has no tag of a release.
    """
    try:
        return _git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD")
    except LocalError as error:
        raise LocalError(
            what="this checkout has no tag of a release",
            why=error.why,
            remedy="fetch the tags (`git fetch --tags`), or name a commit (`make upgrade RELEASE=COMMIT`)",
        ) from error


def commit_of(revision: str) -> str:
    """The commit that a tag, branch or shortened commit names.

    Raises:
        LocalError: The checkout knows none.
    """
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except LocalError as error:
        raise LocalError(
            what=f"this checkout has no commit {revision!r}",
            why=error.why,
            remedy="name a tag or a commit of its history; a shallow clone has few (`git fetch --unshallow`)",
        ) from error


def _git(*words: str) -> str:
    return shell.capture(["git", *words], cwd=CHECKOUT)
