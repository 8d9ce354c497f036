"""What a changelog calls breaking between two versions."""

import re

from tdcs_local.updates.versions import release

MOST_NOTES = 8
"""Notes of one package; whoever needs more reads its changelog."""
_WIDTH = 200
_HEADING = re.compile(r"^(?:#{1,4}\s+|\*\*)?\[?(?:version |release )?v?(\d+\.\d+(?:\.\d+)*)\b", re.IGNORECASE)
_BREAKING = re.compile(
    r"\bbreak(s|ing)?\b|incompatib|\bremove[ds]?\b|no longer|\bdrop(s|ped)? support|action required|must now",
    re.IGNORECASE,
)
_BREAKING_HEADING = re.compile(
    r"^#{2,5}\s.*\b(breaking|removed|removals|urgent upgrade notes)\b", re.IGNORECASE
)


def breaking_notes(changelog: str, *, since: str, upto: str) -> tuple[str, ...]:
    """The lines about breaking changes of versions after `since`, up to and with `upto`.

    Sections begin with a heading that has a version, as in keepachangelog.com and most other changelogs. Below a
    heading such as "Breaking changes" every line counts, elsewhere those with words such as "removed".
    """
    after, last = release(since), release(upto)
    if after is None or last is None:
        return ()
    notes: list[str] = []
    counts = all_lines = False
    for line in changelog.splitlines():
        heading = _HEADING.match(line)
        if heading and (line.startswith(("#", "**", "[")) or len(line) < 60):
            numbers = release(heading[1]) or ()
            counts, all_lines = after < numbers <= last, False
        elif line.startswith("#"):
            all_lines = bool(_BREAKING_HEADING.match(line))
        elif counts and line.strip(" -=*") and (all_lines or _BREAKING.search(line)):
            notes.append(line.strip().lstrip("-*• ")[:_WIDTH])
    return tuple(dict.fromkeys(notes))[:MOST_NOTES]
