"""What the page of the simulator's results says of ratios, of runs that lack and of rules."""

from pathlib import Path

import pytest
from bench.simulation import page as simulation_page
from bench.simulation.change import change_table, change_text, changes
from bench.simulation.matrix import (
    MODEL,
    MODEL_OF_SCHEME,
    SEEDS,
    WINDOWS,
    Case,
    Ratio,
    Results,
    is_older,
    read_results,
)
from bench.simulation.page import check_results, check_text, filled
from bench.simulation.tables import bars, of_windows, ratio_text, span, table

RESULTS = Path(simulation_page.__file__).parents[1] / "results"
PAGE = Path(simulation_page.__file__).parents[2] / "docs" / "simulation.md"


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


def test_rows_of_an_older_simulator_are_distinguished() -> None:
    case = Case(mix="image", scheme="tdcs")
    assert not is_older({case: {"model": MODEL}})
    assert is_older({case: {"model": MODEL - 1}})
    assert is_older({case: {}})


def test_rows_of_a_scheme_that_a_change_does_not_touch_stay() -> None:
    for scheme, model in MODEL_OF_SCHEME.items():
        case = Case(mix="image", scheme=scheme)
        assert not is_older({case: {"model": model}})
        assert is_older({case: {"model": model - 1}})


def test_the_page_is_not_made_of_figures_of_an_older_simulator() -> None:
    check_results(read_results(RESULTS / "simulation.jsonl"))
    with pytest.raises(SystemExit, match="older simulator"):
        check_results({Case(mix="image", scheme="tdcs"): {"model": MODEL - 1}})


def test_the_bars_say_what_the_lowest_single_seed_does() -> None:
    results: Results = {
        Case(mix="image", scheme=scheme, first_week=4, seed=seed): {"meanJctSeconds": seconds}
        for scheme, by_seed in {"tdcs": (100, 100), "oracle": (80, 110)}.items()
        for seed, seconds in enumerate(by_seed, start=1)
    }
    (row,) = [line for line in bars(results).splitlines() if line.startswith("| image: oracle")]
    assert "0.95" in row  # the mean of both seeds meets the bar of 0.87
    assert "| 0.800, weeks 4 and 5, seed 1 | 1 of 2 |" in row


def test_what_a_rule_changed_is_a_mean_of_ratios_and_names_what_became_longer() -> None:
    def rows(scheme: str, *, long: int, short: int) -> Results:
        return {
            Case(mix="image", scheme=scheme, first_week=2): {"meanJctSeconds": long},
            Case(mix="language", scheme=scheme, first_week=3): {"meanJctSeconds": short},
        }

    before = rows("tdcs", long=36000, short=3600)
    results = rows("tdcs", long=32400, short=4320) | rows("oracle", long=36000, short=3600)
    changed = changes(results, before=before, model=4)
    assert "| image | 2 and 3 | 1 | 10.0 | 9.0 | -10.0% | 1.000 | 1.111 |" in change_table(changed)
    text = change_text(changed)
    assert "+5.0% (image -10.0%, language +20.0%)" in text
    assert (
        "Longer by more than 5%: language 3 and 4 with seed 1 (+20.0%). Shorter by more than 5%: 1 of 2."
        in text
    )
    # A later simulator differs by more than the rule.
    assert changes(results, before=before, model=5) == []


def test_the_page_has_the_tables_that_its_rows_give() -> None:
    results = read_results(RESULTS / "simulation.jsonl")
    changed = changes(results, before=read_results(RESULTS / "simulation_before_leaving.jsonl"))
    page = PAGE.read_text(encoding="utf-8")
    assert bars(results) in page
    assert change_table(changed) in page
    assert change_text(changed) in page
