"""The terminal as the commands write to it: no text that they print can give it orders."""

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment

from tdcs.model.printable_text import printable


class Console(rich.console.Console):  # noqa: TID251  the one place
    """Rich's, but control characters in texts are shown and not obeyed.

    Messages of conditions have words of stores and of tenants' objects in them, and `rich.markup.escape` lets an escape
    sequence pass.
    """

    def render(self, *args: Any, **kwargs: Any) -> Iterable[Segment]:
        """All that is printed, in pieces. What rich itself has the terminal do is marked as such, and stays."""
        for segment in super().render(*args, **kwargs):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))


def printable_lines(text: str) -> str:
    """A text with the ends of its lines, and no other control character."""
    return "\n".join(map(printable, text.split("\n")))
