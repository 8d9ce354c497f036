"""Writes the column of tests in docs/explanation/failure-modes.md; `python -m` this renews the page.

A row begins with an anchor, ``<a id="store-throttles"></a>``. Its tests are those marked
``@pytest.mark.failure_mode("store-throttles")``, in any tier.
"""

import re
from collections.abc import Mapping, Sequence

from tests.support.generators.marked_tests import ROOT, MarkedTest, marked_tests

PAGE = ROOT / "docs" / "explanation" / "failure-modes.md"
ROW = re.compile(
    r'^\| <a id="(?P<id>[a-z0-9-]+)"></a>(?P<fails>.+?) \| (?P<happens>.+) \|(?P<tests>[^|]*)\|$'
)


def failure_modes() -> Mapping[str, Sequence[MarkedTest]]:
    """The tests of each failure mode."""
    return marked_tests("failure_mode")


def row_ids(page: str) -> Sequence[str]:
    """The ids of the page's rows, in their order."""
    return [row["id"] for line in page.splitlines() if (row := ROW.match(line))]


def text(page: str, tests: Mapping[str, Sequence[MarkedTest]]) -> str:
    """The page with the tests of each row."""
    return "\n".join(_line(line, tests) for line in page.splitlines()) + "\n"


def _line(line: str, tests: Mapping[str, Sequence[MarkedTest]]) -> str:
    row = ROW.match(line)
    if row is None:
        return line
    # A test of a contract has one name for each engine that keeps it.
    names = dict.fromkeys(f"`{test.name}`" for test in tests.get(row["id"], ()))
    return f'| <a id="{row["id"]}"></a>{row["fails"]} | {row["happens"]} | {", ".join(names)} |'


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(), failure_modes()))
