"""Writes the index of docs/explanation/decisions.md; `python -m` this renews the page.

A decision is a file docs/explanation/decisions/NAME.md: a title, the line ``AREA, decided YYYY-MM-DD.``, and the
sections Context, Decision and Consequences.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tests.support.generators.marked_tests import ROOT

PAGE = ROOT / "docs" / "explanation" / "decisions.md"
FOLDER = PAGE.with_suffix("")
BEGIN = "<!-- The rest is generated: make crds -->\n"
AREAS = (
    "Datasets and sources",
    "Placement and copies",
    "Jobs",
    "Queue",
    "Cache",
    "Reading",
    "Security",
    "Operator and API",
    "Training",
    "Project",
)
DECISION = re.compile(
    r"# (?P<title>[^\n]+)\n\n(?P<area>[^\n]+), decided (?P<date>\d{4}-\d\d-\d\d)\.\n"
    r"\n## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequences\n\n.+\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Decision:
    """One file of the folder."""

    file: str
    title: str
    area: str
    decided: date


def decision(path: Path) -> Decision:
    """A decision as its file says it.

    Raises:
        ValueError: the file has not the form of a decision.
    """
    match = DECISION.fullmatch(path.read_text())
    if match is None or match["area"] not in AREAS:
        raise ValueError(
            f"{path.relative_to(ROOT)} is not a decision: it needs a title, a line "
            f"'AREA, decided YYYY-MM-DD.' with one of the areas {', '.join(AREAS)}, and the sections "
            "Context, Decision and Consequences"
        )
    return Decision(path.name, match["title"], match["area"], date.fromisoformat(match["date"]))


def by_area() -> Mapping[str, Sequence[Decision]]:
    """All decisions, by area and then by date."""
    decisions = sorted(map(decision, FOLDER.glob("*.md")), key=lambda each: (each.decided, each.title))
    return {
        area: [decision_of_area for decision_of_area in decisions if decision_of_area.area == area]
        for area in AREAS
    }


def text(page: str, decisions: Mapping[str, Sequence[Decision]]) -> str:
    """The page with the index of all decisions below its own text."""
    parts = [page.partition(BEGIN)[0] + BEGIN]
    for area, entries in decisions.items():
        lines = "\n".join(f"- [{entry.title}](decisions/{entry.file}), {entry.decided}" for entry in entries)
        toctree = "\n".join(f"decisions/{entry.file.removesuffix('.md')}" for entry in entries)
        parts.append(f"\n## {area}\n\n{lines}\n\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(), by_area()))
