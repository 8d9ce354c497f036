"""What holds for the tests of all tiers: those marked `deep` run only where `TDCS_DEEP` is set.

    @pytest.mark.deep("tests/engine/test_chaos.py")
    def test_that_takes_minutes() -> None: ...

A deep test looks further, or for longer, than the one that it names, which always runs; a measurement names none.
`make test DEEP=1`, or of one tier `make engine DEEP=1`, runs them too.
"""

import gc
import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, for the tiers with a pytest.ini of their own, too."""
    gc.disable()  # until all tests are collected: what is imported and collected stays
    config.addinivalue_line(
        "markers", "deep(instead): takes minutes; the test that always runs instead, in small"
    )
    config.addinivalue_line(
        "markers", "failure_mode(row, ...): keeps rows of docs/explanation/failure-modes.md"
    )
    config.addinivalue_line(
        "markers", "threat(entry, ...): proves entries of docs/explanation/threat-model.md"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip deep tests with their reason, unless they are asked for."""
    if os.environ.get("TDCS_DEEP"):
        return
    for item in items:
        if mark := item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.skip(reason=f"deep, TDCS_DEEP=1 runs it; instead: {mark.args[0]}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Have collections look at nothing that was there before the first test, which are millions of objects."""
    gc.freeze()
    gc.enable()
