"""Which newer versions `make update` takes, and what it says of them."""

import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tdcs_local.updates.breaking_notes import MOST_NOTES, breaking_notes
from tdcs_local.updates.go_modules import requirements, update_module
from tdcs_local.updates.maven_poms import properties
from tdcs_local.updates.python_locks import changes_url, pins
from tdcs_local.updates.update import Update, report
from tdcs_local.updates.versions import newest, release

CHANGELOG = """# Changelog

## [2.1.0] - 2026-10-01
### Added
- A switch.
### Removed
- The option `--old`.

## 2.0.0 (2026-09-01)
- Files are no longer rotated.
- Faster.
#### Breaking changes
* Python 3.9 is gone.

## v1.9.0
- Removed what nobody used.
"""


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("v1.34.4", (1, 34, 4)),
        ("4.1.87.Final", (4, 1, 87)),
        ("2026.4.22", (2026, 4, 22)),
        ("v2.0.0-rc.1", None),
        ("v1.1.4-0.20250930002214-15135a999495", None),
        ("1.0b2", None),
    ],
)
def test_a_version_is_its_numbers_unless_it_is_a_pre_release(
    version: str, numbers: tuple[int, ...] | None
) -> None:
    assert release(version) == numbers


def test_the_newest_patch_minor_and_major_version_are_told_apart() -> None:
    offered = ["v1.8.0", "v1.8.9", "v1.8.10", "v1.9.1", "v2.0.0", "v2.1.0-rc.1"]
    assert newest(offered, like="v1.8.2", parts=2) == "v1.8.10"
    assert newest(offered, like="v1.8.2", parts=1) == "v1.9.1"
    assert newest(offered, like="v1.8.2") == "v2.0.0"
    assert newest(["v1.7.0"], like="v1.8.2") == "v1.8.2"


def test_notes_are_of_the_versions_between_and_of_what_breaks() -> None:
    assert breaking_notes(CHANGELOG, since="1.9.0", upto="2.1.0") == (
        "The option `--old`.",
        "Files are no longer rotated.",
        "Python 3.9 is gone.",
    )
    assert breaking_notes(CHANGELOG, since="2.0.0", upto="2.0.0") == ()


def test_notes_are_bounded_and_a_text_that_is_no_changelog_has_none() -> None:
    many = "## 2.0.0\n" + "\n".join(f"- {number} is removed" for number in range(100))
    assert len(breaking_notes(many, since="1.0.0", upto="2.0.0")) == MOST_NOTES
    assert breaking_notes("A library that removed all doubt.", since="1.0.0", upto="2.0.0") == ()


def test_pins_are_read_from_locks_poms_and_go_modules() -> None:
    assert pins(["aiohttp==3.11.1 \\\n    --hash=sha256:0\n    # via tdcs\n"]) == {"aiohttp": "3.11.1"}
    assert properties("<properties><netty.version>4.1.87.Final</netty.version></properties>") == {
        "netty": "4.1.87.Final"
    }
    gomod = (
        "module tdcs.io/local/thing\n\nrequire a.example/b v1.0.0\n\nrequire (\n"
        "\tc.example/d/v2 v2.0.1\n\te.example/f v0.1.0 // indirect\n)\n\n"
        "replace g.example/h v1.0.0 => i.example/j v1.0.1\n"
    )
    assert requirements(gomod) == {"a.example/b": "v1.0.0", "c.example/d/v2": "v2.0.1"}


def test_the_page_of_changes_is_preferred_to_the_home_page() -> None:
    urls = ["Source, https://a.example", "Changelog, https://a.example/changes"]
    assert changes_url({"project_url": urls}) == "https://a.example/changes"
    assert changes_url({"project_url": urls[:1]}) == "https://a.example"
    assert changes_url({"home_page": "https://b.example"}) == "https://b.example"


def test_the_report_names_what_was_left_why_and_what_breaks() -> None:
    text = report(
        [
            Update(
                name="kopf",
                before="1.0.0",
                after="1.1.0",
                beyond="2.0.0",
                changelog="https://k.example",
                notes=("no longer",),
            ),
            Update(
                name="k8s.io/api", before="v0.34.4", after="v0.34.4", beyond="v0.35.0", held="pinned twice"
            ),
        ]
    )
    assert text.splitlines() == [
        "kopf 1.0.0 -> 1.1.0 (not taken: 2.0.0)",
        "    changes: https://k.example",
        "    breaking: no longer",
        "k8s.io/api v0.34.4 (not taken: v0.35.0)",
        "    by hand: pinned twice",
    ]
    assert report([]) == "everything is as new as its pins allow"


NEEDS_GO = pytest.mark.skipif(
    shutil.which("go") is None, reason="go is not installed: the local cluster needs it, too"
)


def publish(proxy: Path, *, module: str, version: str, changelog: str) -> None:
    """Puts a version of a module into a folder that serves as Go's module proxy."""
    folder = proxy / module / "@v"
    folder.mkdir(parents=True, exist_ok=True)
    gomod = f"module {module}\n\ngo 1.21\n"
    with (folder / "list").open("a") as listed:
        listed.write(f"{version}\n")
    (folder / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
    (folder / f"{version}.mod").write_text(gomod)
    with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
        for name, content in (
            ("go.mod", gomod),
            ("thing.go", "package thing\n"),
            ("CHANGELOG.md", changelog),
        ):
            archive.writestr(f"{module}@{version}/{name}", content)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that requires a thing at v1.0.0, and a module proxy that has newer ones."""
    for version in ("v1.0.0", "v1.0.1", "v1.1.0"):
        changelog = "## v1.0.1\n- The field `Old` is removed.\n\n## v1.0.0\n- First.\n"
        publish(tmp_path / "proxy", module="thing.example/thing", version=version, changelog=changelog)
    for name, value in {
        "GOPROXY": (tmp_path / "proxy").as_uri(),
        "GOSUMDB": "off",
        "GOMODCACHE": str(tmp_path / "modules"),
        "GOTOOLCHAIN": "local",
    }.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "go.mod").write_text(
        "module user.example/user\n\ngo 1.21\n\nrequire thing.example/thing v1.0.0\n"
    )
    (folder / "user.go").write_text('package user\n\nimport _ "thing.example/thing"\n')
    yield folder
    subprocess.run(["go", "clean", "-modcache"], cwd=folder, check=True)  # its files are read-only


@NEEDS_GO
def test_go_takes_the_newest_patch_and_names_what_breaks_in_it_and_what_is_beyond(
    folder: Path, tmp_path: Path
) -> None:
    (update,) = update_module(folder, log=tmp_path / "log")
    assert (update.before, update.after, update.beyond) == ("v1.0.0", "v1.0.1", "v1.1.0")
    assert update.notes == ("The field `Old` is removed.",)
    assert requirements((folder / "go.mod").read_text()) == {"thing.example/thing": "v1.0.1"}
    assert "thing.example/thing v1.0.1" in (folder / "go.sum").read_text()


@NEEDS_GO
def test_a_module_that_cannot_be_had_leaves_its_pins_as_they_are_and_says_why(
    folder: Path, tmp_path: Path
) -> None:
    with (folder / "go.mod").open("a") as gomod:
        gomod.write("\nrequire gone.example/gone v1.0.0\n")
    pinned = (folder / "go.mod").read_text()
    updates = {
        update.name.partition(" ")[0]: update for update in update_module(folder, log=tmp_path / "log")
    }
    gone = updates["gone.example/gone"]
    assert gone.before == gone.after == "v1.0.0"
    assert "gone.example/gone" in gone.held
    # go get reads all that is required, so a module that cannot be had holds back the others of its go.mod.
    assert updates["thing.example/thing"].held
    assert (folder / "go.mod").read_text() == pinned
