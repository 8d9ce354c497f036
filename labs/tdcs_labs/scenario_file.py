"""Scenario files of `tdcs predict`: one training job and what it runs on, in YAML."""

import sys
from pathlib import Path

import yaml

from tdcs.api.failures import InputError
from tdcs.cli.input import shown_name
from tdcs.decide.job.job_scenario import KEYS, JobScenario, parse_scenario, short_name

#: A scenario has a dozen lines; a longer file is another one.
_MOST_BYTES = 1_000_000


class _RepeatedKey(yaml.YAMLError):
    """A key stands twice in one mapping; YAML forbids it, the parser silently takes the last."""


class _Loader(yaml.SafeLoader):
    """YAML without objects and without repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                line = key.start_mark.line + 1
                raise _RepeatedKey(f"key {short_name(key.value)} is given a second time in line {line}")
            keys.add(str(key.value) if isinstance(key, yaml.ScalarNode) else "")
        mapping: dict[object, object] = super().construct_mapping(node, deep=deep)
        return mapping


def read_scenario(*, path: Path) -> JobScenario:
    """Read a scenario file, or standard input when the path is `-`.

    Raises:
        InputError: it cannot be read, is no text or no mapping, has an unknown or repeated key or lacks a required
            one, or a value is out of its bounds.
    """
    where = shown_name(path)
    try:
        text = _content(path).decode("utf-8-sig")
        if len(text) > _MOST_BYTES:
            raise InputError(f"{where}: is longer than a scenario can be; give a file with one key a line")
        loaded = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise InputError(
            f"{where}: cannot be read ({error.strerror}); give the path of a scenario in YAML"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is no text in UTF-8; give a scenario in YAML") from error
    except _RepeatedKey as error:
        raise InputError(f"{where}: {error}; keep one of them") from error
    except RecursionError as error:
        raise InputError(f"{where}: is nested too deeply; write one mapping with plain values") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The parser also passes on what Python's numbers and dates refuse.
        reason = " ".join(str(error).split())
        raise InputError(f"{where}: is not YAML ({reason}); correct the file") from error
    if loaded is None or loaded == {}:
        raise InputError(
            f"{where}: holds no keys; write a line for each, such as gpus: 8 ({', '.join(KEYS)})"
        )
    if not isinstance(loaded, dict):
        kind = {"list": "a list", "str": "plain text"}.get(type(loaded).__name__, "a single value")
        raise InputError(
            f"{where}: is {kind}, not keys with values; write a line for each, such as gpus: 8 ({', '.join(KEYS)})"
        )
    return parse_scenario(where=where, values=loaded)


def _content(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read(_MOST_BYTES + 1)
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)
