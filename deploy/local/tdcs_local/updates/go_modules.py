"""Updates of Go modules: `go get` takes the newest patch of what is pinned, and names what is beyond it."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tdcs_local import shell
from tdcs_local.errors import LocalError
from tdcs_local.updates.breaking_notes import breaking_notes
from tdcs_local.updates.update import Update
from tdcs_local.updates.versions import newest, release

HELD = "its version is also in replace directives"
_ENVIRONMENT = {"GOFLAGS": "-mod=mod"}
_REQUIRE = re.compile(r"^(?:require )?\s*(\S+\.\S+/\S+) (v\S+)\s*$")


def requirements(gomod: str) -> dict[str, str]:
    """The modules that a go.mod names for itself, with their versions, without the indirect ones."""
    matches = (_REQUIRE.match(line) for line in gomod.splitlines() if "=>" not in line)
    return {match[1]: match[2] for match in matches if match}


def update_module(folder: Path, *, log: Path) -> list[Update]:
    """Updates what the go.mod of a folder requires. A module that cannot be updated stays as it is, and says why."""
    updates = []
    for module, version in requirements((folder / "go.mod").read_text()).items():
        if release(version) is None:  # a commit: nobody says which one is newer
            continue
        try:
            update = _update(folder, module, version, log)
        except LocalError as error:
            held = f"{error.what}: {' '.join(error.why.split())[-200:]}"
            update = Update(name=_name(folder, module), before=version, after=version, held=held)
        if update.held or update.beyond or update.after != version:
            updates.append(update)
    return updates


def _name(folder: Path, module: str) -> str:
    return f"{module} ({folder.name})"


def _update(folder: Path, module: str, version: str, log: Path) -> Update:
    name = _name(folder, module)
    listed = shell.capture(["go", "list", "-m", "-versions", "-json", module], cwd=folder, env=_ENVIRONMENT)
    offered = json.loads(listed).get("Versions", ())
    after, beyond = newest(offered, like=version, parts=2), newest(offered, like=version)
    if module.startswith("k8s.io/"):
        held = HELD if beyond != version else ""
        return Update(name=name, before=version, after=version, beyond=beyond if held else "", held=held)
    changelog = ""
    notes: tuple[str, ...] = ()
    if after != version:
        _get(folder, f"{module}@{after}", log)
        changelog, notes = _notes(_files(folder, f"{module}@{after}"), version, after)
    newer = beyond if beyond != after else ""
    return Update(name=name, before=version, after=after, beyond=newer, changelog=changelog, notes=notes)


def _get(folder: Path, module_version: str, log: Path) -> None:
    """Writes a version into go.mod and go.sum; both stay as they are when that fails."""
    pinned = {path: path.read_bytes() for path in (folder / "go.mod", folder / "go.sum") if path.exists()}
    try:
        for command in (["go", "get", module_version], ["go", "mod", "tidy"]):
            failure = f"{' '.join(command)} failed"
            shell.run(command, what=failure, log=log, cwd=folder, env=_ENVIRONMENT, fetches=True)
    except LocalError:
        for path, content in pinned.items():
            path.write_bytes(content)
        raise


def _files(folder: Path, module_version: str) -> list[Path]:
    """The files of a module that Go has fetched, at its top and in its folder of changelogs."""
    command = ["go", "mod", "download", "-json", module_version]
    top = Path(json.loads(shell.capture(command, cwd=folder, env=_ENVIRONMENT, timeout=600))["Dir"])
    return [*top.iterdir(), *(top / "CHANGELOG").glob("*.md")]


def _notes(files: Iterable[Path], before: str, after: str) -> tuple[str, tuple[str, ...]]:
    """The changelog among the files of a module, and what it calls breaking."""
    named = ""
    for path in changelogs(files):
        named = named or str(path)
        if notes := breaking_notes(path.read_text(errors="replace"), since=before, upto=after):
            return str(path), notes
    return named, ()


def changelogs(paths: Iterable[Path]) -> list[Path]:
    """The files among these that are named as changelogs are."""
    names = re.compile(r"(change(log|s)|release[-_]?notes|history|news)\b.*", re.IGNORECASE)
    return sorted(path for path in paths if names.fullmatch(path.name) and path.is_file())
