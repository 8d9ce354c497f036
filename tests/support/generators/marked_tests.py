"""Finds the tests that carry a mark with ids, such as ``@pytest.mark.failure_mode("store-throttles")``.

A page that promises something names the tests that keep the promise. The test names the promise by a mark, and the page
is generated. No test is imported for it, so that tests of other environments are found, too.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("tests", "e2e")


@dataclass(frozen=True)
class MarkedTest:
    """A test that carries a mark."""

    name: str
    path: str
    """Its file, relative to the checkout."""


def marked_tests(mark: str) -> Mapping[str, Sequence[MarkedTest]]:
    """The tests of each id of a mark, ordered by file and line; a test may carry several ids."""
    tests: dict[str, list[MarkedTest]] = {}
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text()
        if f"mark.{mark}(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for row in _ids(node, mark):
                    test = MarkedTest(name=node.name, path=str(path.relative_to(ROOT)))
                    tests.setdefault(row, []).append(test)
    return tests


def _ids(test: ast.FunctionDef | ast.AsyncFunctionDef, mark: str) -> Iterator[str]:
    """The ids that the test's decorators of this mark give it."""
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{mark}":
            for argument in decorator.args:
                if not isinstance(argument, ast.Constant):
                    raise TypeError(f"{test.name}: the ids of {mark} are literal strings")
                yield str(argument.value)
