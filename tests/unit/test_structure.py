"""The shape of the code: commands in its messages, sizes of folders, and what says that it is pure."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "operator/tdcs",
    "scheduler_plugin/tdcs_scheduler",
    "deploy/local/tdcs_local",
    "labs/tdcs_labs",
    "training/tdcs_train",
)


def sources(*words: str) -> Iterator[tuple[Path, str]]:
    """The modules in which all of these words occur, with their text: to parse every one takes seconds."""
    for module in modules():
        source = (ROOT / module).read_text()
        if all(word in source for word in words):
            yield module, source


def modules() -> Iterator[Path]:
    """Every module of the packages, relative to the checkout."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT)


def sentences(source: str) -> Iterator[str]:
    """The strings of a module, each as it is printed but for its values."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_commands_about_cache_clusters_look_in_their_namespace() -> None:
    # They live in the operator's namespace, which is nobody's current one.
    command = re.compile(r"kubectl (?:get|describe|delete|edit) cacheclusters?\b[^,;)]*")
    found = {
        str(module): [
            said
            for text in sentences(source)
            for said in command.findall(text)
            if not re.search(r" (?:-A|-n)\b", said)
        ]
        for module, source in sources("kubectl", "cachecluster")
    }
    assert not {module: commands for module, commands in found.items() if commands}


def test_every_decider_has_a_test_file_of_its_name() -> None:
    # A rule that only stories of the control plane reach is broken without notice. A module without functions
    # (queue_schedule) holds data alone.
    test_files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    deciders = [
        module
        for module, source in sources("def ")
        if module.is_relative_to("operator/tdcs/decide")
        and any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(source)))
    ]
    assert len(deciders) > 100
    assert not [str(module) for module in deciders if f"test_{module.name}" not in test_files]


def test_the_glossary_explains_the_words_that_took_the_place_of_retired_ones() -> None:
    page = (ROOT / "docs" / "explanation" / "glossary.md").read_text()
    terms = []
    for section in page.split("\n## ")[1:]:
        found = re.findall(r"^\*\*(.+?)\*\*", section, re.MULTILINE)
        assert found == sorted(found)
        terms += found
    for word in (
        "agent",
        "copy",
        "grant",
        "locality",
        "manifest",
        "native view",
        "requeue",
        "slot",
        "source",
        "version",
    ):
        assert word in terms


def test_no_decision_reads_the_clock() -> None:
    # Imports are held by a contract; `datetime` is imported for its arithmetic.
    clock = re.compile(r"\b(?:datetime|date)\.(?:now|utcnow|today)\(")
    found = {
        str(module)
        for module in modules()
        if module.is_relative_to("operator/tdcs/decide") or module.is_relative_to("operator/tdcs/model")
        if clock.search((ROOT / module).read_text())
    }
    assert not found
