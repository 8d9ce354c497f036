"""Numbers and tasks in the variables that a job operator sets for its pods."""

import json
from collections.abc import Mapping

from tdcs_train.errors import InputError


def number_from(
    environment: Mapping[str, str],
    name: str,
    *,
    default: int | None = None,
    least: int = 0,
    below: int | None = None,
    remedy: str = "",
) -> int:
    """A whole number from a variable, `least` at least and less than `below`.

    Raises:
        InputError: It is not set and there is no default, is no such number, or cannot be; `remedy` ends the sentence.
    """
    text = environment.get(name)
    ending = f"; {remedy}" if remedy else ""
    if text is None and default is not None:
        return default
    if not text:
        raise InputError(f"the variable {name} is not set{ending}")
    number = int(text) if text.isdecimal() and text.isascii() else None
    if number is None or number < least or (below is not None and number >= below):
        limits = f"from {least} to {below - 1}" if below is not None else f"of at least {least}"
        raise InputError(f"the variable {name} is {text!r}; it must be a whole number {limits}{ending}")
    return number


def task_from(environment: Mapping[str, str]) -> tuple[str, int]:
    """The kind and the index of this process in TF_CONFIG; ("worker", 0) without it.

    Raises:
        InputError: It is not the JSON that TensorFlow wants.
    """
    text = environment.get("TF_CONFIG", "")
    if not text:
        return "worker", 0
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(f"the variable TF_CONFIG cannot be read as JSON: {error}") from error
    task = document.get("task") if isinstance(document, dict) else None
    kind, index = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    if not isinstance(kind, str) or type(index) is not int or index < 0:
        raise InputError(
            f"the variable TF_CONFIG is {text!r}; it must have the cluster and task: type and index (0 or more)"
        )
    return kind, index
