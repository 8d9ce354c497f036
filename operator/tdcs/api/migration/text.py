"""The text of YAML files: documents are rewritten with their comments and order, and the others kept to the letter."""

import io
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tdcs.api import names
from tdcs.api.migration.objects import Document, MigrationError, migrate

_DOCUMENT_START = re.compile(r"^(?=---(?:\s|$))", re.MULTILINE)
_LIST_UNDER_KEY = re.compile(r"^( *)(?:- )*[^\s#-][^#\n]*:[ ]*\n(?: *#[^\n]*\n)*( *)- ", re.MULTILINE)


def migrated(text: str, *, home: str = names.SYSTEM_NAMESPACE) -> tuple[str, list[str]]:
    """A file's text with its documents rewritten, and what was changed.

    Raises:
        MigrationError: a document is no YAML, or not as the former version has it.
    """
    parts, changes, line = [], [], 0
    for part in _DOCUMENT_START.split(text):
        rewritten, found = _document(part, home=home, line=line)
        parts.append(rewritten)
        changes += found
        line += part.count("\n")
    return "".join(parts), changes


def _document(text: str, *, home: str, line: int) -> tuple[str, list[str]]:
    """One document; one that needs nothing comes back as it is, to the letter."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, **_list_indent(text))
    try:
        document = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {line + mark.line + 1}: " if mark is not None else ""
        raise MigrationError(
            f"{place}no YAML: {error.problem or error}. Templates must be rendered before"
        ) from error
    except YAMLError as error:
        raise MigrationError(f"no YAML: {error}") from error
    changes = migrate(document, home=home, renamed=_rename)
    if not changes:
        return text, []
    out = io.StringIO()
    yaml.dump(document, out)
    start = re.match(r"---[^\n]*\n", text)
    return (start[0] if start else "") + out.getvalue(), changes


def _list_indent(text: str) -> dict[str, int]:
    """How far the file indents its lists; by YAML's habit of Kubernetes not at all."""
    found = _LIST_UNDER_KEY.search(text)
    offset = max(len(found[2]) - len(found[1]), 0) if found else 0
    return {"sequence": offset + 2, "offset": offset}


def _rename(mapping: Document, old: str, new: str, value: Any) -> None:
    """Put a value under a new key in the place of an old one, with the comments that stood there."""
    if not isinstance(mapping, CommentedMap):
        raise TypeError(f"a document holds a {type(mapping).__name__}")
    position = list(mapping).index(old)
    comments = mapping.ca.items.pop(old, None)
    del mapping[old]
    if isinstance(value, dict):
        flow = CommentedMap(value)
        flow.fa.set_flow_style()
        value = flow
    mapping.insert(position, new, value)
    if comments is not None:
        mapping.ca.items[new] = comments
