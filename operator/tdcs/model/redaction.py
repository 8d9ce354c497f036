"""Hiding secrets in texts that leave the process: log lines, events, status, error messages."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

_HIDDEN = "[hidden]"
_SHORTEST = 4

# Alluxio repeats mount properties, the credentials among them, in the text of a failed mount. These catch keys that the
# caller did not name, such as those of a mount that somebody else made: as `key=value`, and as protobuf prints a map.
_NAMES = r"[\w.\-]*(?:secret|access-?key|password|passwd|token)[\w.\-]*"
_KEYED = re.compile(rf"(?P<key>{_NAMES}[\"']?\s*(?:[=:]|\s->)\s*)[\"']?[^\s,;}}\])\"']+", re.IGNORECASE)
_PRINTED = re.compile(rf'(?P<key>key:\s*"{_NAMES}"\s+value:\s*)"[^"]*"', re.IGNORECASE)


def redact(*, text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given secrets, nor the value of anything that is called a secret, a key or a token.

    Args:
        text: What is about to be shown.
        secrets: Exact texts to hide; also found when URL-quoted or in base64. Of less than 4 characters they are
            ignored: those would blot out any text.
    """
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            forms |= {secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode()}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _HIDDEN)
    for pattern in (_PRINTED, _KEYED):
        text = pattern.sub(lambda match: f"{match['key']}{_HIDDEN}", text)
    return text
