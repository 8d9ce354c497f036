"""Alluxio's complaints in plain words."""

import re
from typing import Final

from tdcs.model.printable_text import without_rpc_words

# Java's object addresses: another one each time, so that equal failures would look different.
_CHANGING: Final = re.compile(r"@[0-9a-f]{5,16}\b")
_LONGEST: Final = 400


def plain_reason(text: str) -> str:
    """Alluxio's own words without names of gRPC and what differs each time; one line."""
    text = without_rpc_words(_CHANGING.sub("", text))
    lines = (line.strip().rstrip(".") for line in text.splitlines() if line.strip())
    line = "; ".join(lines) or "no reason given"
    return line if len(line) <= _LONGEST else line[:_LONGEST].rstrip() + " …"
