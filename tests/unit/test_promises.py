"""Pages that promise something name the tests that keep it: these pages are generated from the tests' marks."""

from collections import Counter

from tests.support.generators import failure_modes, threats


def test_every_failure_mode_has_an_anchor_and_a_test_that_is_marked_with_it() -> None:
    page = failure_modes.PAGE.read_text()
    rows, tests = failure_modes.row_ids(page), failure_modes.failure_modes()
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| What ")]
    bare = [line for line in lines if not failure_modes.ROW.match(line)]
    assert not bare, (
        'a row begins with its anchor, <a id="what-fails"></a>: see CONTRIBUTING.md, Failure modes'
    )
    assert len(rows) > 180
    assert not [row for row, count in Counter(rows).items() if count > 1], "two rows have the same anchor"
    assert not set(rows) - tests.keys(), 'no test is marked @pytest.mark.failure_mode("ID") for these rows'
    assert not tests.keys() - set(rows), "tests are marked for rows that the page does not have"


def test_the_page_of_failure_modes_names_the_tests_that_are_marked() -> None:
    page = failure_modes.PAGE.read_text()
    assert failure_modes.text(page, failure_modes.failure_modes()) == page, "run `make crds`"


def test_every_threat_is_proved_by_a_test_that_is_marked_with_it_or_says_that_it_is_open() -> None:
    entries, tests = threats.entries(threats.PAGE.read_text()), threats.threats()
    assert len(entries) > 90
    unproved = [name for name, text in entries.items() if name not in tests and "**Open" not in text]
    assert not unproved, 'mark a test @pytest.mark.threat("ID"), or say in the entry what is **Open**'
    assert not tests.keys() - entries.keys(), "tests are marked for threats that the page does not have"


def test_the_threat_model_names_the_tests_that_are_marked() -> None:
    page = threats.PAGE.read_text()
    assert page.count('<a id="') == len(threats.entries(page)), (
        "an entry begins `- <a id=...>` at its own line, once"
    )
    assert threats.text(page, threats.threats()) == page, "run `make crds`"
