"""From the access that the operator has given to what reads the source."""

from __future__ import annotations

from tdcs.api.source_uri import parse_source_uri
from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.bucket_source import BucketReader
from tdcs.node.agent.mount.folder_source import FolderReader
from tdcs.node.agent.mount.source_pieces import SourceFailureError, SourceReader


def open_source(access: SourceAccess) -> SourceReader:
    """A reader of this source; raises SourceFailureError when its address makes no sense."""
    try:
        source = parse_source_uri(access.uri)
        return FolderReader(source.folder) if source.scheme == "file" else BucketReader(access, source)
    except ValueError as error:
        raise SourceFailureError("SourceAway", f"this agent cannot read the source: {error}") from error
