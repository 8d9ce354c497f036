"""Options of the operator whose empty value means something."""

import pytest

from tdcs.api import names
from tdcs.control.operator.operator_command import command


def scheduler_name(*arguments: str) -> str:
    return str(command.make_context("operator", list(arguments)).params["scheduler_name"])


def test_an_empty_scheduler_name_is_not_the_default_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TDCS_SCHEDULER_NAME", raising=False)
    assert scheduler_name() == names.SCHEDULER_NAME
    assert scheduler_name("--scheduler-name=") == ""
    monkeypatch.setenv("TDCS_SCHEDULER_NAME", "")
    assert scheduler_name() == ""
    assert scheduler_name("--scheduler-name=other") == "other"
