"""The reference of the metrics is what the processes expose."""

from pathlib import Path

from click.testing import CliRunner

from tdcs.cli.main import main
from tdcs_labs.reference import metrics

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"


def row(name: str) -> str:
    """The line of a metric in the generated page."""
    (line_of,) = (line for line in metrics.markdown().splitlines() if line.startswith(f"| `{name}` |"))
    return line_of


def test_the_committed_reference_is_what_the_definitions_give() -> None:
    assert PAGE.read_text() == metrics.markdown(), "run: make crds"


def test_every_process_lists_its_metrics_with_their_labels() -> None:
    assert "| histogram | `kind` |" in row("tdcs_operator_pass_seconds")
    assert "| gauge | `namespace`, `dataset` |" in row("tdcs_dataset_cached_bytes")
    assert "| counter | `kind` |" in row("tdcs_extender_answers_total")
    assert "| gauge | `cache_cluster`, `path`, `version`, `form` |" in row("tdcs_view_files")


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "metrics.md"
    result = CliRunner().invoke(main, ["metrics", "--output", str(page)])
    assert (result.exit_code, page.read_text()) == (0, metrics.markdown())
