"""Updates of npm packages: within the major version, into package.json and its lock."""

import json
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from tdcs_local import shell
from tdcs_local.updates.breaking_notes import breaking_notes
from tdcs_local.updates.update import Update
from tdcs_local.updates.versions import newest


def update_packages(folder: Path, *, log: Path) -> list[Update]:
    """Updates what the package.json of a folder names."""
    updates = []
    for name, version in json.loads((folder / "package.json").read_text())["dependencies"].items():
        offered = json.loads(shell.capture(["npm", "view", name, "versions", "--json"], cwd=folder))
        after, beyond = newest(offered, like=version, parts=1), newest(offered, like=version)
        notes: tuple[str, ...] = ()
        if after != version:
            install = [
                "npm",
                "install",
                "--package-lock-only",
                "--save-exact",
                "--omit-lockfile-registry-resolved",
            ]
            command = [*install, "--no-audit", "--no-fund", f"{name}@{after}"]
            shell.run(command, what=f"updating {name} failed", log=log, cwd=folder, fetches=True)
            notes = breaking_notes(_changelog(name, after), since=version, upto=after)
        if beyond != version:
            url = shell.capture(["npm", "view", f"{name}@{after}", "homepage"], cwd=folder)
            newer = beyond if beyond != after else ""
            updates.append(
                Update(name=name, before=version, after=after, beyond=newer, changelog=url, notes=notes)
            )
    return updates


def _changelog(name: str, version: str) -> str:
    """The changelog in a published package; empty if it has none."""
    with tempfile.TemporaryDirectory() as scratch:
        packed = shell.capture(
            ["npm", "pack", "--silent", f"{name}@{version}"], cwd=Path(scratch), timeout=600
        )
        with tarfile.open(Path(scratch) / packed.splitlines()[-1]) as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if len(path.parts) == 2 and member.isfile() and path.name.lower().startswith("change"):
                    file = archive.extractfile(member)
                    return file.read().decode(errors="replace") if file else ""
    return ""
