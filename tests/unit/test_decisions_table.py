"""The table "Where is it decided?" of CONTRIBUTING.md names files and functions that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "operator/tdcs", ROOT)
TERM = re.compile(r"`([^`]+)`")


def rows() -> list[list[str]]:
    """The table's rows as cells, without its head."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("### Where is it decided?")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def names_in(file: Path) -> set[str]:
    """Functions, classes, constants and fields that a module defines; those of a class as `Class.name`, too."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from (node.name, prefix + node.name)
                yield from walk(node.body, f"{node.name}." if isinstance(node, ast.ClassDef) else prefix)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))

    return set(walk(ast.parse(file.read_text()).body, ""))


def file_of(term: str, before: Path | None) -> Path | None:
    """The file that a cell names: from the product's root or the repository's, or next to the file named before."""
    folders = [*FOLDERS, *([before.parent] if before is not None else [])]
    return next((folder / term for folder in folders if (folder / term).is_file()), None)


def test_each_row_of_the_table_names_files_that_exist_and_functions_that_stand_in_them() -> None:
    wrong: list[str] = []
    counted = 0
    for question, decided, called in rows():
        for cell, known in ((decided, names_in), (called, words_of)):
            file: Path | None = None
            for term in TERM.findall(cell):
                if term.endswith(".py"):
                    file = file_of(term, file)
                    if file is None:
                        wrong.append(f"{question}: there is no {term}")
                elif file is not None and re.fullmatch(r"[A-Za-z_][\w.]*", term):
                    counted += 1
                    if term not in known(file) and not is_member(term, file):
                        wrong.append(f"{question}: {file.relative_to(ROOT)} has no {term}")
    assert not wrong, "\n".join(wrong)
    assert counted > 30


def words_of(file: Path) -> set[str]:
    """Where a decision is called from, its name need not be defined."""
    return set(re.findall(r"\w+", file.read_text()))


def is_member(term: str, file: Path) -> bool:
    """Whether a name is a member, such as `Reason.NO_CLAIM`, of what a module imports."""
    return "." in term and term in file.read_text()
