"""Where the files of a web source are asked for: `http`, `https`, or a repository of the Hugging Face Hub."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from tdcs.api.source_uri import CLAIM_SCHEME, HUB, HUB_KINDS, parse_source_uri
from tdcs.model.claim_source import FILES_PATH

INDEX: Final = "index"
FILES: Final = "files"
REVISION: Final = "revision"
"""Among the options of a source, see `tdcs.api.dataset_source.SourceOptions`; files are one a line."""

DEFAULT_REVISION: Final = "main"

_SAFE: Final = "/-_.~!$&'()*+,;=:@"
"""What stands for itself in the path of a URL (RFC 3986, 3.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddress:
    """The address of a web source.

    Attributes:
        origin: scheme, host and port to which requests go.
        host: what they call it; empty: as in `origin`.
        folder: encoded path of the folder that holds the files, with a slash at its end.
        index: that of the document which names them.
    """

    origin: str
    host: str
    folder: str
    index: str

    def file(self, path: bytes) -> str:
        """The URL of a file, by its path below the source."""
        return f"{self.origin}{self.folder}{quote(path, safe=_SAFE)}"


def web_address(uri: str, options: Mapping[str, str]) -> WebAddress:
    """The address of a source.

    Args:
        uri: canonical, of one of `tdcs.api.source_uri.WEB_SCHEMES`, or of a claim, which a pod serves.
        options: with the endpoint as it is reached.

    Raises:
        ValueError: The URI is none.
    """
    source = parse_source_uri(uri)
    host = options.get("host", "")
    if source.scheme == "hf":
        owner, name, *below = source.path.split("/")
        kind = "" if source.bucket == HUB_KINDS[1] else f"{source.bucket}/"
        revision = quote(options.get(REVISION, DEFAULT_REVISION), safe="")
        path = _encoded("/".join(below))
        return WebAddress(
            origin=options.get("endpoint", HUB).rstrip("/"),
            host=host,
            folder=f"/{kind}{owner}/{name}/resolve/{revision}/" + (f"{path}/" if path else ""),
            index=f"/api/{source.bucket}/{owner}/{name}/",
        )
    if source.scheme == CLAIM_SCHEME:
        origin = options["endpoint"].rstrip("/")
        return WebAddress(origin=origin, host="", folder=FILES_PATH, index="")
    folder = f"/{_encoded(source.path)}/" if source.path else "/"
    return WebAddress(
        origin=options.get("endpoint", f"{source.scheme}://{source.bucket}").rstrip("/"),
        host=host,
        folder=folder,
        index=folder + quote(options.get(INDEX, ""), safe=_SAFE),
    )


def authorization(*, user: str, password: str, token: str) -> dict[str, str]:
    """The header that shows credentials; empty without any."""
    if user:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _encoded(path: str) -> str:
    """A path as requests have it, whether its percent signs stand for bytes already or not."""
    return quote(unquote(path, errors="surrogateescape").encode("utf-8", "surrogateescape"), safe=_SAFE)
