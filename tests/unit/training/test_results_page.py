"""The page of results is what its program makes of the committed files."""

from pathlib import Path

import pytest
from bench.training import page


def test_the_page_of_results_is_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = page.PAGE.read_text()
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.main()
    assert (tmp_path / "page.md").read_text() == committed, "run python -m bench.training.page"
