"""From the access that the operator has given to what reads the source."""

from __future__ import annotations

from tdcs.agent.source.bucket import BucketReader
from tdcs.agent.source.folder import FolderReader
from tdcs.agent.source.reader import SourceFailureError, SourceReader
from tdcs.api.source_uri import parse_source_uri
from tdcs.engine.agents import SourceAccess


def open_source(access: SourceAccess) -> SourceReader:
    """A reader of this source; raises SourceFailureError when its address makes no sense."""
    try:
        source = parse_source_uri(access.uri)
        return FolderReader(source.folder) if source.scheme == "file" else BucketReader(access, source)
    except ValueError as error:
        raise SourceFailureError("SourceAway", f"this agent cannot read the source: {error}") from error
