"""What contributors meet first: hooks, owners and templates name what the repository has."""

import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"


def tracked_files() -> list[str]:
    """Every tracked file, relative to the checkout."""
    command = ["git", "ls-files"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")


def test_each_pattern_of_the_owners_matches_a_file_and_names_a_team() -> None:
    files = tracked_files()
    lines = (GITHUB / "CODEOWNERS").read_text().splitlines()
    rules = [line.split() for line in lines if line and not line.startswith("#")]
    assert rules[0][0] == "*", "every file has an owner"
    for pattern, *owners in rules:
        assert pattern == "*" or any(file.startswith(pattern.lstrip("/")) for file in files), pattern
        assert owners, pattern
        assert all(re.fullmatch(r"@[\w-]+/[\w-]+", owner) for owner in owners), pattern


def test_the_forms_of_issues_have_what_their_schema_requires() -> None:
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert form.keys() >= {"name", "description", "body"}, path.name
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids)), path.name
        assert all(field["attributes"]["label"] for field in form["body"]), path.name
        assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown", "checkboxes"}


def test_templates_name_targets_of_make_and_files_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= set((ROOT / "Makefile").read_text().partition(".PHONY:")[2].partition("\n")[0].split())
    texts = [path.read_text() for path in (*GITHUB.rglob("*.md"), *GITHUB.rglob("*.yml"))]
    texts += [(ROOT / name).read_text() for name in ("CODE_OF_CONDUCT.md", "SECURITY.md")]
    for text in texts:
        assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets
        for name in re.findall(r"\b[A-Z_]+\.md\b", text):
            assert (ROOT / name).exists(), name


def test_the_hooks_run_what_the_quick_tiers_run() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    tools = {match[1] for hook in hooks if (match := re.search(r"\.venv/bin/([\w-]+)", hook["entry"]))}
    assert tools == {"ruff", "codespell", "mypy", "lint-imports", "python"}
    assert not [hook["id"] for hook in hooks if hook["language"] != "system"], "hooks fetch nothing"
