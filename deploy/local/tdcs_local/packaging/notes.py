"""The notes of a release, from the changelog."""

import re

from tdcs_local.errors import LocalError

UNRELEASED = "Unreleased"


def release_notes(*, changelog: str, version: str) -> str:
    """The section of a version, or else what is not released yet, under a heading with the version.

    Raises:
        LocalError: there is neither, or nothing in it.
    """
    sections = {
        match["name"]: match["text"].strip()
        for match in re.finditer(
            r"^## \[?(?P<name>[^\]\s]+)\]?[^\n]*\n(?P<text>.*?)(?=^## |\Z)",
            changelog,
            re.DOTALL | re.MULTILINE,
        )
    }
    text = sections.get(version) or sections.get(UNRELEASED)
    if not text:
        raise LocalError(
            what=f"the changelog has no notes for {version}",
            why=f"there is no section {version} and no section {UNRELEASED} with text in it",
            remedy="write one into CHANGELOG.md",
        )
    return f"# TDCS {version}\n\n{text}\n"
