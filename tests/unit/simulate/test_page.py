"""What the page of the simulator's results says of ratios, of runs that lack and of rules."""

import pytest
from bench.simulation_matrix import SEEDS, WINDOWS, Ratio
from bench.simulation_page import check_text, filled, missed
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
    assert (missed(0), missed(1), missed(2)) == ("none falls short", "1 does not", "2 do not")


def test_the_page_names_the_rules_that_wait_for_their_controllers_as_the_sources_do() -> None:
    check_text()
