"""What the page of the simulator's results says of ratios, of runs that lack and of rules."""

import pytest
from bench.simulation_matrix import MODEL, SEEDS, WINDOWS, Case, Ratio, is_older
from bench.simulation_page import check_text, filled
from bench.simulation_tables import of_windows, ratio_text, span, table


def test_a_section_without_results_is_left_out() -> None:
    template = "before\n@if rows@\n## Rows\n\n@rows@\n@end@\nafter\n"
    assert filled(template, parts={"rows": table(["a"], [])}) == "before\nafter\n"
    assert filled(template, parts={"rows": table(["a"], [["1"]])}) == (
        "before\n## Rows\n\n| a |\n| --- |\n| 1 |\nafter\n"
    )


@pytest.mark.parametrize(
    ("value", "bar", "text"),
    [(0.9893, 0.99, "0.989"), (2.034, 2.0, "2.034"), (2.5, 2.0, "2.50"), (1, None, "1.00")],
)
def test_a_ratio_near_its_bar_has_three_digits(value: float, bar: float | None, text: str) -> None:
    assert ratio_text(value, bar=bar) == text


def test_a_ratio_of_few_seeds_says_so() -> None:
    assert span(Ratio(mean=1.2, least=1.2, most=1.2, seeds=1)) == "1.20, 1 seed"
    assert span(Ratio(mean=1.2, least=1.1, most=1.3, seeds=2)) == "1.20 (1.10 to 1.30), 2 seeds"
    assert span(Ratio(mean=1.2, least=1.1, most=1.3, seeds=len(SEEDS))) == "1.20 (1.10 to 1.30)"


def test_windows_that_were_not_run_are_named() -> None:
    assert of_windows(1, run=2) == f"1 of 2 ({len(WINDOWS) - 2} not run)"
    assert of_windows(5, run=len(WINDOWS)) == f"5 of {len(WINDOWS)}"


def test_the_page_names_the_rules_that_wait_for_their_controllers_as_the_sources_do() -> None:
    check_text()


def test_rows_of_an_older_simulator_are_told_apart() -> None:
    case = Case(mix="image", scheme="tdcs")
    assert not is_older({case: {"model": MODEL}})
    assert is_older({case: {"model": MODEL - 1}})
    assert is_older({case: {}})
