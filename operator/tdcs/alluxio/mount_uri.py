"""The URI by which Alluxio knows a bucket that is mounted: with a scheme of the mount's own.

Alluxio mounts no source that is the same as, inside or around a mounted one, and tells sources apart by scheme, bucket
and prefix alone. A bucket's name says nothing of its owner: it is another bucket at another endpoint, and at the same
one with other keys another tenant's view of it. With a scheme for each mount none of them is in another's way. The
overlay on Alluxio's jars (`io.tdcs.names.MountScheme`) reads such a source as s3.
"""

import hashlib
import re
from typing import Final

_S3: Final = "s3://"
_OF_A_MOUNT: Final = re.compile(r"s3-[0-9a-f]{16}://")


def mount_uri(uri: str, *, path: str) -> str:
    """The URI for Alluxio of a canonical one.

    Args:
        uri: of a bucket, or of a folder, which keeps its own.
        path: where it is mounted.
    """
    if not uri.startswith(_S3):
        return uri
    return f"s3-{hashlib.sha256(path.encode()).hexdigest()[:16]}://{uri.removeprefix(_S3)}"


def source_uri(text: str) -> str:
    """A text with the URIs of sources in place of Alluxio's."""
    return _OF_A_MOUNT.sub(_S3, text)
