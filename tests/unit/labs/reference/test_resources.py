"""The reference of the custom resources is what the models give."""

from pathlib import Path

from click.testing import CliRunner

from tdcs.cli.main import main
from tdcs_labs.reference import resources

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "resources.md"


def test_the_committed_reference_is_what_the_models_give() -> None:
    assert PAGE.read_text() == resources.markdown(), "run: make crds"


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "resources.md"
    result = CliRunner().invoke(main, ["resources", "--output", str(page)])
    assert (result.exit_code, page.read_text()) == (0, resources.markdown())
