"""What examples read from the variables of their pods."""

import pytest

from tdcs_train.environment import number_from, task_from
from tdcs_train.errors import InputError


def test_a_number_is_read_and_a_default_stands_for_a_variable_that_is_not_set() -> None:
    assert number_from({"RANK": "2"}, "RANK", below=3) == 2
    assert number_from({}, "RANK", default=0) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "the variable WORLD_SIZE is not set; give --workers"),
        ("", "the variable WORLD_SIZE is not set; give --workers"),
        ("two", "the variable WORLD_SIZE is 'two'; it must be a whole number from 1 to 4; give --workers"),
        ("0", "the variable WORLD_SIZE is '0'; it must be"),
        ("-1", "the variable WORLD_SIZE is '-1'; it must be"),
        ("5", "the variable WORLD_SIZE is '5'; it must be"),
        ("1.0", "the variable WORLD_SIZE is '1.0'; it must be"),
        ("²", "the variable WORLD_SIZE is '²'; it must be"),
        ("٣", "the variable WORLD_SIZE is '٣'; it must be"),
    ],
)
def test_a_variable_that_is_no_such_number_is_named(text: str | None, reason: str) -> None:
    environment = {} if text is None else {"WORLD_SIZE": text}
    with pytest.raises(InputError) as caught:
        number_from(environment, "WORLD_SIZE", least=1, below=5, remedy="give --workers")
    assert str(caught.value).startswith(reason)


def test_the_least_number_is_named_without_an_end() -> None:
    with pytest.raises(InputError, match=r"it must be a whole number of at least 1$"):
        number_from({"PODS": "0"}, "PODS", least=1)


def test_the_task_of_a_tensorflow_job_is_read() -> None:
    assert task_from({}) == ("worker", 0)
    assert task_from({"TF_CONFIG": '{"cluster": {}, "task": {"type": "ps", "index": 3}}'}) == ("ps", 3)


@pytest.mark.parametrize(
    "text",
    ["{", "7", "[]", '{"task": 1}', '{"task": {"type": "ps"}}', '{"task": {"type": "ps", "index": "1"}}'],
)
def test_a_task_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="the variable TF_CONFIG"):
        task_from({"TF_CONFIG": text})
