"""Each decision is a file of one form, the index lists all of them, and the code that they name exists."""

import re

from tests.support.generators import decisions
from tests.support.generators.marked_tests import ROOT

CODE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+(?:\.[a-z]+)?)`")


def test_every_decision_has_context_decision_consequences_and_a_date() -> None:
    listed = [entry for entries in decisions.by_area().values() for entry in entries]
    assert len(listed) == len(list(decisions.FOLDER.iterdir())) > 50
    assert len({entry.title for entry in listed}) == len(listed), "two decisions have one title"


def test_the_index_lists_every_decision() -> None:
    page = decisions.PAGE.read_text()
    assert decisions.text(page, decisions.by_area()) == page, "run `make crds`"


def test_decisions_name_files_that_exist() -> None:
    missing = [
        (path.name, name)
        for path in sorted(decisions.FOLDER.glob("*.md"))
        for name in CODE.findall(path.read_text())
        if not any(
            (folder / (name + suffix)).exists()
            for folder in (ROOT, ROOT / "operator/tdcs")
            for suffix in ("", ".py")
        )
    ]
    assert not missing
