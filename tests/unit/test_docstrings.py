"""Sections of docstrings name parameters and attributes that there are: renaming one leaves no other name behind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("operator", "scheduler_plugin", "training/tdcs_train", "labs/tdcs_labs", "deploy/local/tdcs_local")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def section(docstring: str, title: str) -> list[str]:
    """The names that a section explains; one line can explain several."""
    _, begins, rest = docstring.partition(f"{title}:\n")
    lines = rest.split("\n\n")[0].split("\n") if begins else []
    explained = [match[1] for line in lines if (match := re.match(r" {4}(\S[^:]*):", line))]
    return [name.strip("*` ") for names in explained for name in re.split(r",| and ", names)]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = function.args
    plain = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return {each.arg for each in (*plain, given.vararg, given.kwarg) if each is not None}


def attributes(kind: ast.ClassDef) -> set[str]:
    """What the body of a class defines, and what its methods set."""
    fields = {
        node.target.id
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    plain = {
        target.id
        for node in kind.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    methods = {node.name for node in kind.body if isinstance(node, FUNCTIONS)}
    stored = {
        node.attr
        for node in ast.walk(kind)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return fields | plain | methods | stored


def unknown_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, FUNCTIONS):
        named, known = section(ast.get_docstring(node) or "", "Args"), parameters(node)
        yield from (name for name in named if name not in known)
    if isinstance(node, ast.ClassDef):
        docstring = ast.get_docstring(node) or ""
        yield from (name for name in section(docstring, "Attributes") if name not in attributes(node))
        made = next(
            (each for each in node.body if isinstance(each, FUNCTIONS) and each.name == "__init__"), None
        )
        if made is not None:
            yield from (name for name in section(docstring, "Args") if name not in parameters(made))


@pytest.mark.parametrize("room", ROOMS)
def test_sections_of_docstrings_name_what_there_is(room: str) -> None:
    wrong = [
        (str(path.relative_to(ROOT)), name)
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for name in unknown_names(node)
    ]
    assert not wrong
