"""PersistentVolumeClaims as sources: which one, and how the pod that has it is asked."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tdcs.api.source_uri import parse_source_uri
from tdcs.model.file_selection import FileSelection

NAMESPACE: Final = "namespace"
"""Among the options of a source: that of the claim."""
RUN_AS_USER: Final = "runAsUser"
RUN_AS_GROUP: Final = "runAsGroup"
"""Among the options of a source: as whom its pod reads the files."""

FILES_PATH: Final = "/files/"
"""Where the pod has the files; their encoded paths follow."""

TOKEN_FILE: Final = "token"  # noqa: S105 - its name
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
"""Keys of the Secret of the pod: what callers show, and what it shows itself."""


class ClaimFolder(NamedTuple):
    """A folder of a claim; `folder` is empty for all of it."""

    namespace: str
    claim: str
    folder: str

    def __str__(self) -> str:
        below = f", folder {self.folder}" if self.folder else ""
        return f"PersistentVolumeClaim {self.namespace}/{self.claim}{below} (spec.source.uri)"


def claim_folder(uri: str, options: Mapping[str, str]) -> ClaimFolder:
    """The folder of a source.

    Args:
        uri: canonical.
        options: of the source, with the namespace.

    Raises:
        ValueError: The URI is none of a claim.
    """
    source = parse_source_uri(uri)
    return ClaimFolder(options[NAMESPACE], source.bucket, source.path)


def file_etag(modified_ms: int, size: int) -> str:
    """The ETag of a file by what its file system knows of it.

    Args:
        modified_ms: when it last changed, in milliseconds since 1970, as the tags of files of folders have it.
    """
    return f'"{modified_ms:x}-{size:x}"'


def folders_left_out(selection: FileSelection) -> tuple[str, ...]:
    """The patterns of a selection that leave out whole folders, which need not be looked into; none where others may
    take some of their files back in."""
    if any(pattern.startswith("!") for pattern in selection.exclude):
        return ()
    return tuple(pattern for pattern in selection.exclude if pattern.endswith("/"))
