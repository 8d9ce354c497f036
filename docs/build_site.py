"""Builds the documentation of every release and of the checkout, each in a folder of its own.

    python docs/build_site.py .local/site

A release is a tag ``vMAJOR.MINOR.PATCH``; its pages are built from its own sources, with the settings and in the
environment of this checkout. ``index.html`` leads to the newest release.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DEVELOPMENT = "main"
"""The folder of the checkout's own pages."""
VARIABLE = "TDCS_DOCS_VERSIONS"
"""Read by conf.py: the version of the pages, then all versions, newest first."""
INDEX = """<!doctype html>
<meta charset="utf-8">
<title>TDCS</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">The documentation of TDCS {version}</a>
"""


def releases(tags: Sequence[str]) -> list[str]:
    """The tags of releases, newest first; pre-releases and other tags are left out."""
    numbered = {tag: re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)", tag) for tag in tags}
    versions = {tag: tuple(map(int, match.groups())) for tag, match in numbered.items() if match}
    return sorted(versions, key=lambda tag: versions[tag], reverse=True)


def build_site(checkout: Path, site: Path) -> list[str]:
    """Builds the pages of all versions. Returns the versions in the site, newest first, the checkout's last.

    Raises:
        RuntimeError: The pages of a version cannot be built.
    """
    tags = releases(_git(checkout, "tag", "--list").split())
    versions = [*(tag.removeprefix("v") for tag in tags), DEVELOPMENT]
    site.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tdcs-docs-") as scratch:
        for tag in tags:
            source = Path(scratch) / tag
            _git(checkout, "worktree", "add", "--detach", source, tag)
            try:
                _build(source, site, settings=checkout, version=tag.removeprefix("v"), versions=versions)
            finally:
                _git(checkout, "worktree", "remove", "--force", source)
    _build(checkout, site, settings=checkout, version=DEVELOPMENT, versions=versions)
    (site / "index.html").write_text(INDEX.format(version=versions[0]))
    return versions


def _build(source: Path, site: Path, *, settings: Path, version: str, versions: Sequence[str]) -> None:
    packages = (source / folder for folder in ("operator", "scheduler_plugin", "labs", "training"))
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-E", "-b", "html"),
            *("-c", settings / "docs", source / "docs", site / version),
        ],
        env=os.environ
        | {VARIABLE: " ".join([version, *versions]), "PYTHONPATH": os.pathsep.join(map(str, packages))},
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        raise RuntimeError(f"the pages of version {version} cannot be built: {ran.stderr.strip()}")


def _git(checkout: Path, *words: str | Path) -> str:
    return subprocess.run(["git", *words], cwd=checkout, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Builds the site and says where it is."""
    parser = argparse.ArgumentParser(
        description="Build the documentation of every release and of the checkout."
    )
    parser.add_argument("site", type=Path, help="The folder of the site.")
    site = parser.parse_args().site
    print(f"versions {', '.join(build_site(CHECKOUT, site.absolute()))}: open {site}/index.html")


if __name__ == "__main__":
    main()
