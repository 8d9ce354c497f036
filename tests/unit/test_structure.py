"""The shape of the code: names of modules, sizes of folders, and what says that it is pure."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "operator/tdcs",
    "scheduler_plugin/tdcs_scheduler",
    "deploy/local/tdcs_local",
    "training/tdcs_train",
)
MOST_MODULES = 16
"""In one folder, besides ``__init__`` and ``__main__``: what a reader takes in at a glance."""

RETIRED_MODULES: Mapping[str, str] = {
    "operator/tdcs/controllers": "rounds verdicts looking watching adopting dealing portions tally throttle "
    "survey data background teardown source line shapes release quotes order failing shell relist invalid sizes "
    "status leaving",
    "operator/tdcs/agent": "kept news memory carrier source_carrier peer_carrier checks",
    "operator/tdcs/engine": "contents recent outdated spelling copies failures placements batches",
    "operator/tdcs/csi": "noticing sight way freshen disk guard",
    "operator/tdcs/simulate": "keeper oracle",
    "scheduler_plugin/tdcs_scheduler": "short_way complaints patience",
    "deploy/local/tdcs_local": "products life digits steps access machine alluxio_product",
}
"""Names of modules, by area, that say nothing of the field; the glossary has the words that took their place."""

RETIRED_IDENTIFIERS = frozenset(
    {"told", "lies", "CacheKeeper", "Complaints", "Departure", "Departures", "Oracle", "Relist", "ShortWay"}
)
"""Names of variables, functions and classes that are a private metaphor or say nothing of the field."""

PLAIN_PROSE = (
    "deploy/local/tdcs_local",
    "operator/tdcs/agent",
    "operator/tdcs/cli",
    "operator/tdcs/controllers/cachecluster",
    "operator/tdcs/controllers/dataset",
    "operator/tdcs/controllers/mounts",
    "operator/tdcs/controllers/preload",
    "operator/tdcs/csi",
    "operator/tdcs/engine",
    "operator/tdcs/kube",
    "operator/tdcs/listing",
    "operator/tdcs/planning",
    "operator/tdcs/simulate",
    "scheduler_plugin/tdcs_scheduler",
)
"""Folders in which comments, docstrings and messages avoid `RIDDLES`."""

ONE_NAME_EACH = (
    "operator/tdcs/agent",
    "operator/tdcs/controllers",
    "operator/tdcs/engine",
    "operator/tdcs/listing",
)
"""Folders in which a class has its name for itself: one word for one thing."""

RIDDLES = re.compile(r"\b(?:told|whose|nobody|thereof)\b", re.IGNORECASE)
"""Words that make a sentence hard to follow for readers in a hurry, or in their second language."""


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


def dotted(module: Path) -> str:
    """The name under which a module is imported."""
    parts = module.with_suffix("").parts[
        next(len(Path(p).parts) - 1 for p in PACKAGES if module.is_relative_to(p)) :
    ]
    return ".".join(parts).removesuffix(".__init__")


def identifiers(source: str) -> set[str]:
    """The names that a module gives: of variables, parameters, attributes, functions and classes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.Attribute(attr=name, ctx=ast.Store())
            ):
                found.add(name.lstrip("_"))
    return found


@pytest.mark.parametrize("area", RETIRED_MODULES)
def test_no_module_has_a_retired_name(area: str) -> None:
    retired = set(RETIRED_MODULES[area].split())
    assert not [str(module) for module in modules() if module.is_relative_to(area) and module.stem in retired]


def test_no_identifier_is_a_retired_word() -> None:
    found = {
        str(module): identifiers(source) & RETIRED_IDENTIFIERS
        for module, source in sources()
        if any(word in source for word in RETIRED_IDENTIFIERS)
    }
    assert not {module: words for module, words in found.items() if words}


def test_no_two_classes_of_the_data_side_have_one_name() -> None:
    found: dict[str, list[str]] = {}
    for module in modules():
        if any(module.is_relative_to(folder) for folder in ONE_NAME_EACH):
            for node in ast.parse((ROOT / module).read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(str(module))
    assert not {name: places for name, places in found.items() if len(places) > 1}


def test_comments_and_messages_are_in_plain_words() -> None:
    found = {
        str(module): RIDDLES.findall((ROOT / module).read_text())
        for module in modules()
        if any(module.is_relative_to(folder) for folder in PLAIN_PROSE)
    }
    assert not {module: words for module, words in found.items() if words}


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


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    counts: dict[str, int] = {}
    for module in modules():
        if module.stem not in {"__init__", "__main__"}:
            counts[str(module.parent)] = counts.get(str(module.parent), 0) + 1
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def test_a_module_that_says_it_is_pure_is_held_to_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = {
        name for found in contracts if "pure" in found["name"].lower() for name in found["source_modules"]
    }
    missing = []
    for module, source in sources("Pure."):
        says = ast.get_docstring(ast.parse(source)) or ""
        name = dotted(module)
        covered = any(name == one or name.startswith(f"{one}.") for one in held)
        if re.search(r"(?:^|[.:] |\n)Pure\.(?:\s|$)", says) and not covered:
            missing.append(name)
    assert not missing, "add them to the contract on purity in pyproject.toml"


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
