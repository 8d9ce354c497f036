"""The files of the last release are made of its own commit, and kept."""

import subprocess
from pathlib import Path

import pytest

from tdcs_local import cache
from tdcs_local.errors import LocalError
from tdcs_local.packaging import last_release
from tdcs_local.paths import cache_root
from tdcs_local.progress import Reporter

MAKEFILE = """package:
\tmkdir -p .local/release && cp version .local/release/ && echo "$(RELEASE_URL)" > .local/release/url
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a release 1, a release 2 and a commit after it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.setattr(last_release, "CHECKOUT", folder)
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "cache"))
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "A")
        monkeypatch.setenv(f"{name}_EMAIL", "a@example.com")
    git(folder, "init", "--quiet")
    (folder / "Makefile").write_text(MAKEFILE)
    for version in ("1", "2", "3"):
        (folder / "version").write_text(version)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", version)
        if version != "3":
            git(folder, "tag", f"v0.{version}.0")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", folder, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.parametrize(("revision", "version"), [("", "2"), ("v0.1.0", "1"), ("HEAD", "3")])
def test_the_files_are_those_of_the_named_release_or_the_last_tag(
    checkout: Path, revision: str, version: str
) -> None:
    (checkout / "version").write_text("what nobody committed")
    folder = last_release.ensure(revision, reporter=Reporter(quiet=True))
    assert (folder / "version").read_text() == version
    assert (folder / "url").read_text().startswith("https://")
    assert {path.name for path in folder.iterdir()} == {"version", "url"}
    assert folder == cache.product_folder("release", git(checkout, "rev-parse", revision or "v0.2.0"))


def test_they_are_made_once(checkout: Path) -> None:
    folder = last_release.ensure(reporter=Reporter(quiet=True))
    (folder / "kept").touch()
    assert (last_release.ensure(reporter=Reporter(quiet=True)) / "kept").exists()


def test_a_release_that_cannot_be_packaged_is_said_and_leaves_nothing(checkout: Path) -> None:
    (checkout / "Makefile").write_text("package:\n\tfalse\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "broken")
    with pytest.raises(LocalError, match="could not be packaged"):
        last_release.ensure("HEAD", reporter=Reporter(quiet=True))
    assert not list((cache_root() / "products" / "release").iterdir())


def test_without_a_tag_the_remedy_is_to_fetch_tags_or_to_name_a_commit(checkout: Path) -> None:
    git(checkout, "tag", "--delete", "v0.1.0", "v0.2.0")
    with pytest.raises(LocalError) as refused:
        last_release.ensure(reporter=Reporter(quiet=True))
    assert "git fetch --tags" in refused.value.remedy
    assert "RELEASE=COMMIT" in refused.value.remedy


@pytest.mark.parametrize("revision", ["v9.9.9", "--upload-pack=x", "nothing at all"])
def test_a_revision_that_is_none_is_refused_by_name(checkout: Path, revision: str) -> None:
    with pytest.raises(LocalError, match="has no commit") as refused:
        last_release.ensure(revision, reporter=Reporter(quiet=True))
    assert revision in refused.value.what
