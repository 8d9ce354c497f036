"""Updates of the versions that a pom has as properties: patches alone, by Maven's plugin for versions."""

import re
from pathlib import Path

from tdcs_local import shell
from tdcs_local.updates.update import Update

_PROPERTY = re.compile(r"<([\w.-]+)\.version>([^<]+)</")


def properties(pom: str) -> dict[str, str]:
    """The properties of a pom that are versions."""
    return {match[1]: match[2] for match in _PROPERTY.finditer(pom)}


def update_pom(pom: Path, *, log: Path) -> list[Update]:
    """Updates the properties of a pom. Maven's repositories have no changelogs."""
    before = properties(pom.read_text())
    command: list[str | Path] = [
        "mvn",
        "-B",
        "-q",
        "-ntp",
        "-f",
        pom,
        "versions:update-properties",
        "-DgenerateBackupPoms=false",
    ]
    patches = ["-DallowMajorUpdates=false", "-DallowMinorUpdates=false"]
    shell.run([*command, *patches], what=f"updating {pom} failed", log=log, fetches=True)
    after = properties(pom.read_text())
    return [
        Update(name=f"{name} ({pom.parent.name})", before=version, after=after[name])
        for name, version in before.items()
        if after[name] != version
    ]
