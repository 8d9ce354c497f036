"""The site of the documentation: a folder for each release and one for the checkout, which lead to each other."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build_site() -> ModuleType:
    """The module docs/build_site.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("build_site", CHECKOUT / "docs" / "build_site.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A repository with two releases and a later commit, each with a page that says which one it is."""
    checkout = tmp_path / "checkout"
    docs = checkout / "docs"
    (docs / "templates").mkdir(parents=True)
    template = CHECKOUT / "docs" / "templates" / "versions.html"
    (docs / "templates" / template.name).write_text(template.read_text())
    settings = (CHECKOUT / "docs" / "conf.py").read_text()
    (docs / "conf.py").write_text("import os" + settings[settings.index("\nproject = ") :])

    def git(*words: str) -> None:
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
        subprocess.run(["git", *identity, *words], cwd=checkout, check=True, capture_output=True)

    git("init", "-q")
    for version in ("v0.1.0", "v0.10.0", "main"):
        (docs / "index.md").write_text(f"# Pages of {version}\n")
        git("add", "--all")
        git("commit", "-q", "-m", version)
        if version != "main":
            git("tag", version)
    git("tag", "v0.11.0-rc.1")
    return checkout


def test_the_site_has_each_release_and_leads_to_the_newest(
    build_site: ModuleType, released: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    assert build_site.build_site(released, site) == ["0.10.0", "0.1.0", "main"]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
    for version in ("0.10.0", "0.1.0", "main"):
        page = (site / version / "index.html").read_text()
        assert f"Pages of {version if version == 'main' else f'v{version}'}" in page
        for listed in ("0.10.0", "0.1.0", "main"):
            assert f'../{listed}/index.html"' in page
    subprocess.run(["git", "diff", "--quiet"], cwd=released, check=True)
    worktrees = subprocess.check_output(["git", "worktree", "list"], cwd=released, text=True)
    assert len(worktrees.splitlines()) == 1


def test_releases_are_ordered_by_number_and_other_tags_are_left_out(build_site: ModuleType) -> None:
    assert build_site.releases(["v0.9.0", "v0.10.0", "v1.0.0-rc.1", "nightly", "v0.2.11"]) == [
        "v0.10.0",
        "v0.9.0",
        "v0.2.11",
    ]


def test_pages_that_cannot_be_built_are_named_by_their_version(
    build_site: ModuleType, released: Path, tmp_path: Path
) -> None:
    (released / "docs" / "conf.py").write_text("raise ValueError('no settings')\n")
    with pytest.raises(
        RuntimeError, match=r"the pages of version 0\.10\.0 cannot be built: (?s:.*)no settings"
    ):
        build_site.build_site(released, tmp_path / "site")
