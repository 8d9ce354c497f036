"""Updates of Python packages: `uv` renews the locks, and `pip` reads the new versions' metadata."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tdcs_local import shell
from tdcs_local.errors import LocalError
from tdcs_local.updates.breaking_notes import breaking_notes
from tdcs_local.updates.update import Update

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", re.MULTILINE)
_CHANGES = re.compile(r"change|release|history|news", re.IGNORECASE)


def pins(texts: Iterable[str]) -> dict[str, str]:
    """The version of each package in these locks; they agree where they have the same one."""
    return {match[1].lower(): match[2] for text in texts for match in _PIN.finditer(text)}


def update_locks(checkout: Path, *, log: Path) -> list[Update]:
    """Renews `locks/` with the newest versions that pyproject.toml allows."""
    before = pins(path.read_text() for path in sorted((checkout / "locks").glob("*.txt")))
    command = ["make", "--no-print-directory", "lock", "LOCK_FLAGS=--upgrade"]
    shell.run(command, what="renewing locks/ failed", log=log, cwd=checkout, fetches=True)
    after = pins(path.read_text() for path in sorted((checkout / "locks").glob("*.txt")))
    changed = {
        name: after[name] for name in sorted(before.keys() & after.keys()) if after[name] != before[name]
    }
    metadata = _metadata(changed)
    return [_update(name, before[name], version, metadata.get(name, {})) for name, version in changed.items()]


def _update(name: str, before: str, after: str, metadata: Mapping[str, Any]) -> Update:
    notes = breaking_notes(metadata.get("description", ""), since=before, upto=after)
    return Update(name=name, before=before, after=after, changelog=changes_url(metadata), notes=notes)


def changes_url(metadata: Mapping[str, Any]) -> str:
    """Where a package's metadata says that its changes are described; else its home page."""
    urls = [entry.partition(",") for entry in metadata.get("project_url", ())]
    for label, _, url in urls:
        if _CHANGES.search(label):
            return str(url).strip()
    home = metadata.get("home_page") or next((url for _, _, url in urls), "")
    return str(home).strip()


def _metadata(packages: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """The metadata of packages by name; of those that pip finds for this platform."""
    metadata: dict[str, Mapping[str, Any]] = {}
    for chunk in _chunks([f"{name}=={version}" for name, version in packages.items()]):
        for item in _resolved(chunk):
            metadata[str(item["metadata"]["name"]).lower().replace("_", "-")] = item["metadata"]
    return metadata


def _resolved(requirements: Sequence[str]) -> list[Mapping[str, Any]]:
    """What pip would install, without installing it; of each alone where together fails."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
    options = ["--ignore-installed", "--no-deps", "--only-binary", ":all:", "--report", "-"]
    command = [*pip, *options, *requirements]
    try:
        answer = json.loads(
            shell.capture(command, what="reading the metadata of new versions failed", timeout=600)
        )
    except LocalError:
        if len(requirements) == 1:
            return []
        return [item for requirement in requirements for item in _resolved([requirement])]
    return list(answer["install"])


def _chunks(items: Sequence[str], size: int = 20) -> Iterable[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
