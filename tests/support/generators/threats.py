"""Writes the lists of tests in docs/explanation/threat-model.md; `python -m` this renews the page.

An entry begins with an anchor, ``- <a id="planted-links"></a>``, and ends with ``*Tests:*`` and the tests that are
marked ``@pytest.mark.threat("planted-links")``. One without that line says what is open.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence

from tests.support.generators.marked_tests import ROOT, MarkedTest, marked_tests

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
ENTRY = re.compile(
    r'^- <a id="(?P<id>[a-z0-9-]+)"></a>(?P<text>.*?)(?P<tests>^  \*Tests:\*.*?)?(?=^- |^$|\Z)', re.M | re.S
)


def threats() -> Mapping[str, Sequence[MarkedTest]]:
    """The tests of each threat."""
    return marked_tests("threat")


def entries(page: str) -> Mapping[str, str]:
    """The text of each entry by its id, without its tests."""
    return {entry["id"]: entry["text"] for entry in ENTRY.finditer(page)}


def text(page: str, tests: Mapping[str, Sequence[MarkedTest]]) -> str:
    """The page with the tests of each entry."""
    return ENTRY.sub(lambda entry: _entry(entry, tests), page)


def _entry(entry: re.Match[str], tests: Mapping[str, Sequence[MarkedTest]]) -> str:
    # A test of a contract has one name for each engine that keeps it.
    names = dict.fromkeys(f"`{test.name}`" for test in tests.get(entry["id"], ()))
    listed = textwrap.fill(
        f"*Tests:* {', '.join(names)}", 118, break_long_words=False, break_on_hyphens=False
    )
    body = entry["text"] + (textwrap.indent(listed, "  ") + "\n" if names else "")
    return f'- <a id="{entry["id"]}"></a>{body}'


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(), threats()))
