"""Lines of the log: each names its logger and its level, in every process and both forms."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tdcs.api import names
from tdcs.control.operator.operator_command import NOISY, configure_log

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def _root_logger() -> Iterator[None]:
    """The root logger as it was, after a test that sets it up."""
    root, quiet = logging.getLogger(), logging.getLogger("asyncio")
    before, level = list(root.handlers), root.level
    propagates, handlers = quiet.propagate, list(quiet.handlers)
    levels = {name: logging.getLogger(name).level for name in NOISY}
    yield
    root.handlers[:], quiet.handlers[:] = before, handlers
    quiet.propagate = propagates
    root.setLevel(level)
    for name, log_level in levels.items():
        logging.getLogger(name).setLevel(log_level)


def say_all() -> None:
    logging.getLogger(names.AUDIT_LOG).info("Dataset %s mounted %s", "n/pictures", "s3://pictures")
    logging.getLogger("tdcs.control.status_publisher").warning("refused")


@pytest.mark.usefixtures("_root_logger")
def test_each_line_of_the_operator_in_json_has_its_logger_and_its_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_log("json", verbose=False)
    say_all()
    audit, refused = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (audit["logger"], audit["severity"]) == ("tdcs.audit", "info")
    assert audit["message"] == "Dataset n/pictures mounted s3://pictures"
    assert (refused["logger"], refused["severity"]) == ("tdcs.control.status_publisher", "warn")
    assert audit["timestamp"]


@pytest.mark.usefixtures("_root_logger")
def test_each_plain_line_of_the_operator_has_its_time_its_level_and_its_logger(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_log("plain", verbose=False)
    say_all()
    audit, refused = capsys.readouterr().err.splitlines()
    assert audit.endswith(" INFO tdcs.audit: Dataset n/pictures mounted s3://pictures")
    assert refused.endswith(" WARNING tdcs.control.status_publisher: refused")


def test_all_processes_of_the_chart_have_the_same_lines() -> None:
    places = [ROOT / "operator" / "tdcs", ROOT / "scheduler_plugin" / "tdcs_scheduler"]
    modules = {
        path.name for place in places for path in place.rglob("*.py") if "%(message)s" in path.read_text()
    }
    assert modules == {"names.py"}
