"""What it changed that small pods leave empty nodes to larger ones, for `bench/simulation/page.py`.

The rows of the scheme `tdcs` from before that rule are kept in `bench/results/simulation_before_leaving.jsonl`, as the
simulator of then cannot be run any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench.simulation.matrix import MIXES, MODEL, SEEDS, WINDOWS, Case, Results, mean_hours
from bench.simulation.tables import table, weeks

RULE_MODEL = 4
"""The model that the rule came with: rows of a later one would show more than the rule."""

NOTABLE = 0.05
"""A change of a window's mean completion time that is named in the text, as a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One window with one seed before and with the rule; mean completion times in hours."""

    case: Case
    before: float
    now: float
    oracle: float

    @property
    def relative(self) -> float:
        """By how much the mean completion time grew, as a fraction."""
        return self.now / self.before - 1


def changes(results: Results, *, before: Results, model: int = MODEL) -> list[Change]:
    """All windows of two weeks that were run before and with the rule; none once the simulator has changed further."""
    cases = [
        Case(mix=mix, scheme="tdcs", first_week=week, seed=seed)
        for mix in MIXES
        for week in WINDOWS
        for seed in SEEDS
    ]
    return [
        Change(
            case=case,
            before=mean_hours([before[case]]),
            now=mean_hours([results[case]]),
            oracle=mean_hours([results[oracle]]),
        )
        for case in cases
        if (oracle := replace(case, scheme="oracle")) in results
        and {case} <= before.keys() & results.keys()
        and model == RULE_MODEL
    ]


def change_table(changes: Sequence[Change]) -> str:
    """Each window and seed."""
    header = [
        "mix",
        "weeks",
        "seed",
        "mean h before",
        "mean h now",
        "change",
        "oracle / tdcs before",
        "oracle / tdcs now",
    ]
    rows = [
        [
            change.case.mix,
            weeks(change.case.first_week),
            str(change.case.seed),
            f"{change.before:.1f}",
            f"{change.now:.1f}",
            f"{change.relative:+.1%}",
            f"{change.oracle / change.before:.3f}",
            f"{change.oracle / change.now:.3f}",
        ]
        for change in changes
    ]
    return table(header, rows)


def change_text(changes: Sequence[Change]) -> str:
    """What the table comes to: means of the ratios, and the windows that became longer."""
    if not changes:
        return ""
    first = [change for change in changes if change.case.seed == SEEDS[0]]
    longer = sorted(
        (change for change in changes if change.relative > NOTABLE),
        key=lambda change: change.relative,
        reverse=True,
    )
    shorter = sum(change.relative < -NOTABLE for change in changes)
    named = ", ".join(
        f"{change.case.mix} {weeks(change.case.first_week)} with seed {change.case.seed} ({change.relative:+.1%})"
        for change in longer
    )
    return (
        f"The mean over the rows, each as a ratio, is {_means(changes)}; of the first seed alone {_means(first)}.\n"
        f"Longer by more than {NOTABLE:.0%}: {named or 'none'}. Shorter by more than {NOTABLE:.0%}: {shorter} of "
        f"{len(changes)}."
    )


def _means(changes: Sequence[Change]) -> str:
    by_mix = {mix: [change.relative for change in changes if change.case.mix == mix] for mix in MIXES}
    parts = ", ".join(f"{mix} {fmean(relative):+.1%}" for mix, relative in by_mix.items() if relative)
    return f"{fmean(change.relative for change in changes):+.1%} ({parts})"
