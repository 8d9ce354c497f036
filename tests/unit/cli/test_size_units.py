"""Sizes have the same units wherever a user meets them: columns, messages, commands, and the page of `tdcs ui`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tdcs
from tdcs.model.humanize import human

CODE = Path(tdcs.__file__).parent
PAGE = CODE / "cli/live/page/page.js"
UNITS = ("kB", "MB", "GB", "TB", "PB")
DECIMAL = re.compile(rf"(?<![A-Za-z])({'|'.join(UNITS)})\b")
ALLUXIO = CODE / "alluxio/profile.py"
"""Its settings are in Alluxio's own words."""


def texts(code: str) -> Iterator[str]:
    """What a module may print: its strings but docstrings, which are expressions of their own."""
    tree = ast.parse(code)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_text_of_the_product_has_decimal_units() -> None:
    modules = [(source.name, source.read_text()) for source in CODE.rglob("*.py") if source != ALLUXIO]
    texts_with_units = [
        (name, text)
        for name, code in modules
        if any(unit in code for unit in UNITS)  # few have one; to parse a module takes milliseconds
        for text in texts(code)
        if DECIMAL.search(text)
    ]
    assert not texts_with_units
    assert not DECIMAL.search(PAGE.read_text())


@pytest.mark.parametrize("power", range(1, 6))
def test_the_page_and_the_messages_have_the_same_units(power: int) -> None:
    units = re.search(r'const UNITS = \["B", (.*)\];', PAGE.read_text())
    assert units is not None
    assert human(5 * 1024**power) == f"5 {units[1].replace(chr(34), '').split(', ')[power - 1]}"
