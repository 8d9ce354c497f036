"""Why a node does not see all of a shared folder, for people."""

from tdcs.model.agent_state import FolderCount
from tdcs.model.cache_engine import Source, SourceError


def refused_folder(
    source: Source, found: FolderCount, *, node: str, seconds: float, path: str
) -> SourceError:
    """Why what a node has counted is not all that is there."""
    if found.cut_off and not found.failure:
        count_so_far = f"node {node} has seen {found.files} of them"
        return _slow_folder(source, f"{count_so_far} after {seconds:.0f} s, and there are more", path=path)
    return SourceError(
        attempted=f"count the files of {source.uri}",
        reason=f"{found.failure} (node {node})",
        remedy=_remedy(found),
        path=path,
    )


def _remedy(found: FolderCount) -> str:
    if found.refused:
        return "Name the folder itself in spec.source.uri, without symbolic links on the way"
    if found.unreadable:
        return (
            "Make it readable for everybody, or have the cache's administrator name a group that may read it "
            "(spec.folderAccess of the CacheCluster)"
        )
    return "See what is wrong with the folder on that node"


def _slow_folder(source: Source, reason: str, *, path: str) -> SourceError:
    return SourceError(
        attempted=f"count the files of {source.uri}",
        reason=reason,
        remedy="See why the folder is so slow there, or name one with fewer files in spec.source.uri",
        path=path,
    )
