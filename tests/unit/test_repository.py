"""What holds for the repository as a whole."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tdcs
import tdcs_train

ROOT = Path(__file__).resolve().parents[2]

# In pieces, so that this file does not hold what it looks for.
REGISTRY_HOSTS = (
    "proxy.golang" + ".org",
    "sum.golang" + ".org",
    "pypi" + ".org",
    "files.pythonhosted" + ".org",
    "registry.npmjs" + ".org",
    "deb.debian" + ".org",
    "repo1.maven" + ".org",
    "repo.maven.apache" + ".org",
)
DEVELOPMENT_PATHS = re.compile(r"(?<![\w./-])/(?:home|Users|work)/(?!me\b)\w+")


def tracked_texts() -> list[tuple[str, str]]:
    """Every tracked text file with its content."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found = []
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if b"\0" not in content:
                found.append((name, content.decode()))
    return found


def locked(name: str) -> dict[str, str]:
    """Package names and versions of a lock file."""
    text = (ROOT / name).read_text()
    return {
        canonicalize_name(found[1]): found[2]
        for found in re.finditer(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", text, re.MULTILINE)
    }


def wanted(*groups: str) -> list[Requirement]:
    """What pyproject.toml asks for: the runtime, and the named groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = list(project["project"]["dependencies"])
    for group in groups:
        lines += project["dependency-groups"][group]
    return [Requirement(line) for line in lines]


def wanted_by(folder: str) -> list[Requirement]:
    """What the distribution in a folder asks for, without its extras and TDCS itself."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
    return [Requirement(line) for line in project["project"]["dependencies"] if line != "tdcs"]


def test_no_file_names_the_host_of_a_package_registry() -> None:
    named = [(name, host) for name, text in tracked_texts() for host in REGISTRY_HOSTS if host in text]
    assert not named


def test_no_file_holds_a_path_of_a_development_machine() -> None:
    named = [(name, found[0]) for name, text in tracked_texts() if (found := DEVELOPMENT_PATHS.search(text))]
    assert not named


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        ("locks/runtime.txt", ()),
        ("locks/development.txt", ("test", "docs", "lint", "release")),
        ("locks/mutants.txt", ("test", "mutants")),
    ],
)
def test_the_lock_holds_what_the_project_asks_for(lock: str, groups: tuple[str, ...]) -> None:
    versions = locked(lock)
    for requirement in wanted(*groups) + ([*wanted_by("training"), *wanted_by("labs")] if groups else []):
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name} is not in {lock}: run `make lock`"
        assert requirement.specifier.contains(versions[name]), f"{lock} holds another {name}: run `make lock`"


def test_every_lock_is_in_the_folder_of_locks_and_made_by_the_same_command() -> None:
    assert not [
        name
        for name, text in tracked_texts()
        if re.search("--hash=sha256:[0-9a-f]{64}", text) and not name.startswith("locks/")
    ]
    assert not [path.name for path in (ROOT / "locks").iterdir() if "make lock" not in path.read_text()[:200]]


def test_development_and_runtime_agree_on_every_version() -> None:
    runtime, development = locked("locks/runtime.txt"), locked("locks/development.txt")
    assert {name: development.get(name) for name in runtime} == runtime


def test_mutants_are_tried_with_the_versions_of_development() -> None:
    development, mutants = locked("locks/development.txt"), locked("locks/mutants.txt")
    assert {name: mutants[name] for name in development if name in mutants} == {
        name: version for name, version in development.items() if name in mutants
    }


def test_every_deep_test_names_what_runs_instead_of_it() -> None:
    """In small, always: a file, or a test of one, that exists."""
    marks = [
        (name, mark)
        for name, text in tracked_texts()
        if re.match(r"(tests|e2e)/.*\.py$", name) and name != "tests/unit/test_repository.py"
        for mark in re.findall(r"mark\.deep\(\s*\"([^\"]*)\"\s*\)", text)
    ]
    assert len(marks) > 5
    for name, mark in marks:
        named = re.findall(r"((?:tests|e2e)/[\w/]+)(\.py(?:::(\w+))?)?", mark)
        assert named or "it is a measurement" in mark, (name, mark)
        for path, suffix, test in named:
            file = ROOT / f"{path}{'.py' if suffix else ''}"
            assert file.exists(), (name, mark)
            assert not test or f"def {test}(" in file.read_text(), (name, mark)


def test_the_changelog_says_in_some_lines_what_the_first_release_holds() -> None:
    """Lines of unreleased changes belong under Unreleased; nobody has an earlier release."""
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert sections[0].startswith("Unreleased")
    first = sections[-1]
    assert first.startswith("0.1.0")
    assert len(first.splitlines()) < 60, "write what changed under Unreleased"


def test_all_that_is_released_has_one_version() -> None:
    """`make version` writes that of `tdcs.__version__` into the others."""
    chart = yaml.safe_load((ROOT / "charts" / "tdcs" / "Chart.yaml").read_text())
    labs = tomllib.loads((ROOT / "labs" / "pyproject.toml").read_text())["project"]["version"]
    versions = {chart["version"], chart["appVersion"], labs, tdcs_train.__version__}
    assert versions == {tdcs.__version__}


def test_names_of_unit_tests_are_shorter_than_90_characters() -> None:
    long = [
        (path.name, name)
        for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text())
        if len(name) >= 90
    ]
    assert not long
