"""From the access that the operator has given to what reads the source."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from tdcs.agent.source.bucket import BucketReader
from tdcs.agent.source.folder import FolderReader
from tdcs.agent.source.reader import SourceFailureError, SourceReader
from tdcs.engine.agents import SourceAccess


def open_source(access: SourceAccess) -> SourceReader:
    """A reader of this source; raises SourceFailureError when its address makes no sense."""
    parts = urlsplit(access.uri)
    if parts.scheme == "file":
        return FolderReader(unquote(parts.path))
    if parts.scheme == "s3":
        return BucketReader(access)
    raise SourceFailureError("SourceAway", f"this agent cannot read a source of the kind {parts.scheme}://")
