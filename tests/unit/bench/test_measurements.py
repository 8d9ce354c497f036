"""The pages of figures are those of the committed results, and their commands exist."""

import shlex

import pytest
from bench import measurements


@pytest.mark.parametrize("name", measurements.CONTENTS)
def test_a_page_has_the_figures_of_the_committed_results(name: str) -> None:
    page = (measurements.PAGES / name).read_text()
    assert measurements.page(*measurements.CONTENTS[name]) == page, "run `python -m bench.measurements`"


@pytest.mark.parametrize("name", measurements.CONTENTS)
def test_each_figure_names_a_command_whose_script_has_its_options(name: str) -> None:
    for table in measurements.CONTENTS[name][1]:
        _, script, *words = shlex.split(table.command)
        source = (measurements.ROOT / script).read_text()
        assert [word for word in words if word.startswith("--") and f'"{word}"' not in source] == [], script
