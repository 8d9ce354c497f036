"""The one canonical form of a source's URI and of a store's endpoint, and what neither may be. Called before any check.

An engine may read a path more generously than a check does: Alluxio turns backslashes into slashes, drops tabs and
resolves dots *after* its own checks, and a store's client may decode percent signs. So everything that could lead
elsewhere in any of these readings is refused.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9]*)://(?P<bucket>[^/]*)(?P<path>.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DOTS: Final = frozenset({".", ".."})
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of Unicode: control, invisible, surrogate, private, unassigned, line and paragraph ends. Of the private
ones some servers make backslashes and dots (U+F05C, U+F02E), invisible ones hide between dots."""
_DECODINGS: Final = 4
"""A name that is still another one after so many decodings of its percent signs is refused."""

REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A region becomes a part of a host's name (s3.REGION.amazonaws.com): nothing in it may end that name."""

AMAZON: Final = "https://s3.amazonaws.com"
"""The endpoint that no endpoint stands for: Amazon S3 in any region."""

DEFAULT_REGION: Final = "us-east-1"
"""In which requests are signed until the store says another one."""

AMAZON_DOMAINS: Final = {
    "cn-": "amazonaws.com.cn",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "eusc-": "amazonaws.eu",
}
"""Domains of Amazon's partitions, by how the names of their regions begin; all others are in amazonaws.com."""

FILER_FOLDERS: Final[tuple[str, ...]] = (
    ".snapshot/",
    ".snapshots/",
    "~snapshot/",
    ".zfs/",
    "lost+found/",
    "@eaDir/",
    "\\#recycle/",
    "@Recycle/",
    "@Recently-Snapshot/",
    "@tmp/",
    ".Trash-*/",
    "$RECYCLE.BIN/",
    "System Volume Information/",
)
"""Folders that file systems and filers keep for themselves, as patterns of gitignore."""

_ENDPOINT: Final = re.compile(
    r"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?/?"
)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS: Final = {"http": 80, "https": 443}

HUB: Final = "https://huggingface.co"
"""The endpoint of `hf` sources that name none."""

HUB_KINDS: Final = ("datasets", "models", "spaces")
"""Kinds of repositories of the Hugging Face Hub; a URI that names none is of a model."""

WEB_SCHEMES: Final = frozenset({"http", "https", "hf"})
"""Sources that are read with plain requests of HTTP: no signature, and names that a document lists."""

GOOGLE: Final = "https://storage.googleapis.com"
"""The endpoint of `gs` sources that name none."""

AZURE_SCHEMES: Final = frozenset({"az", "abfs", "abfss"})
"""Spellings of Azure's containers, of which the first one is canonical."""

CLOUD_SCHEMES: Final = AZURE_SCHEMES | {"gs"}
"""Object stores with an API of their own, next to S3."""

CLAIM_SCHEME: Final = "pvc"
"""A PersistentVolumeClaim of the Dataset's namespace."""

_AZURE_DOMAIN: Final = "core.windows.net"
_AZURE_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_AZURE_CONTAINER: Final = re.compile(r"\$root|\$web|(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_AZURE_FORMS: Final = (
    "az://ACCOUNT/CONTAINER[/PREFIX], or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net[/PREFIX]"
)

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_CLAIM: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_CLAIM: Final = 253
_FORMS: Final = (
    "s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX], az://ACCOUNT/CONTAINER[/PREFIX], http[s]://HOST[/FOLDER], "
    "hf://datasets/OWNER/NAME, pvc://CLAIM[/FOLDER] or file:///FOLDER"
)


@dataclass(frozen=True, slots=True)
class SourceUri:
    """A source's URI in its parts. Only `parse_source_uri` makes one.

    Attributes:
        scheme: `s3`, `gs`, `az`, `file`, `http`, `https`, `hf` or `pvc`.
        bucket: its name, of Azure `ACCOUNT/CONTAINER`; the host and port of a web server; the kind of a repository
            (`datasets`); the name of a PersistentVolumeClaim; empty for a folder.
        path: the prefix in the bucket, the folder without the slash in front, or a repository (`OWNER/NAME`) and what
            follows it; without a slash at its end.
    """

    scheme: str
    bucket: str
    path: str

    @property
    def folder(self) -> str:
        """The absolute path of a folder."""
        return f"/{self.path}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")


def canonical_source_uri(uri: str) -> str:
    """The URI without needless slashes, its scheme in lower case: two spellings of one source become equal.

    Raises:
        ValueError: As `parse_source_uri`.
    """
    return str(parse_source_uri(uri))


def is_folder(uri: str) -> bool:
    """Whether a URI names a folder; no judgement on the rest of it."""
    return uri[:7].lower() == "file://"


def is_web(uri: str) -> bool:
    """Whether a URI is of one of `WEB_SCHEMES`; no judgement on the rest of it."""
    return uri.partition("://")[0].lower() in WEB_SCHEMES


def is_claim(uri: str) -> bool:
    """Whether a URI names a PersistentVolumeClaim; no judgement on the rest of it."""
    return uri.partition("://")[0].lower() == CLAIM_SCHEME


def is_native_only(uri: str) -> bool:
    """Whether agents alone can read a source, and Alluxio cannot mount it; no judgement on the rest of the URI."""
    return uri.partition("://")[0].lower() in WEB_SCHEMES | CLOUD_SCHEMES | {CLAIM_SCHEME}


def endpoint_of(uri: str, *, named: str | None) -> str | None:
    """The URL of the store that a source is in; None for a folder or a claim, and for Amazon S3.

    Args:
        uri: of the source.
        named: `spec.source.options.endpoint`.
    """
    scheme, _, location = uri.partition("://")
    match scheme.lower():
        case "file" | "pvc":
            return None
        case "http" | "https":
            return f"{scheme.lower()}://{location.partition('/')[0]}"
        case "hf":
            return named or HUB
        case "gs":
            return named or GOOGLE
        case "az":
            return named or _azure_endpoint(location.partition("/")[0])
        case "abfs" | "abfss":
            return named or _azure_endpoint(location.partition("/")[0].partition("@")[2].partition(".")[0])
    return named


def _azure_endpoint(account: str) -> str:
    return f"https://{account}.blob.{_AZURE_DOMAIN}"


def canonical_place(place: str) -> str:
    """A bucket, or what stands for it in a store of another kind, and what is below it, in its one form.

    Raises:
        ValueError: No URI can name it; the text says why.
    """
    if _has_control(place):
        raise ValueError("it holds a control character, or one that cannot be seen")
    if any(character in place for character in "\\?#:"):
        raise ValueError("it holds one of \\ ? # :")
    pieces = [piece for piece in place.split("/") if piece]
    for piece in pieces:
        _check_piece(piece)
    if not pieces:
        raise ValueError("it names nothing")
    return "/".join(pieces)


def parse_source_uri(uri: str) -> SourceUri:
    """The parts of a URI. Nothing else takes one apart: what was checked here is what is read.

    Raises:
        ValueError: It is none of the forms that a source may have; the text says what is wrong with it.
    """
    parts = _URI.fullmatch(uri)
    scheme = parts["scheme"].lower() if parts else ""
    if (
        parts is None
        or scheme not in {"s3", "file", CLAIM_SCHEME, *CLOUD_SCHEMES, *WEB_SCHEMES}
        or (scheme in {"s3", CLAIM_SCHEME, *CLOUD_SCHEMES} and not parts["bucket"])
    ):
        raise ValueError(f"it is none of {_FORMS}")
    if _has_control(uri):
        raise ValueError("it holds a control character, or one that cannot be seen")
    if "\\" in uri:
        raise ValueError("it holds a backslash, which a cache reads as a slash")
    if "?" in uri or "#" in uri:
        raise ValueError("it holds '?' or '#', which begin a query or a fragment")
    pieces = [piece for piece in parts["path"].split("/") if piece]
    for piece in pieces:
        _check_piece(piece)
    bucket, path = parts["bucket"], "/".join(pieces)
    match scheme:
        case "file":
            if bucket:
                raise ValueError("a folder is absolute: file:///FOLDER, with three slashes")
            if not path:
                raise ValueError("the folder is missing after the three slashes")
            return SourceUri(scheme, "", path)
        case "http" | "https":
            host = str(canonical_endpoint(f"{scheme}://{bucket}")).partition("://")[2]
            return SourceUri(scheme, host, path)
        case "hf":
            return _repository(bucket, pieces)
        case "az" | "abfs" | "abfss":
            return _container(scheme, bucket, pieces)
        case "pvc":
            if not _CLAIM.fullmatch(bucket) or len(bucket) > _LONGEST_CLAIM:
                raise ValueError(
                    f"{bucket!r} is no name of a PersistentVolumeClaim: write pvc://CLAIM[/FOLDER], without a namespace"
                )
            return SourceUri(scheme, bucket, path)
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"{bucket!r} is no bucket's name: 3 to 63 lower-case letters, digits, dots and dashes"
        )
    return SourceUri(scheme, bucket, path)


def _container(scheme: str, host: str, pieces: list[str]) -> SourceUri:
    account, (container, *below) = host, pieces or [""]
    if scheme != "az":
        container, _, name = host.partition("@")
        account, _, domain = name.partition(".")
        below = pieces
        if domain not in (f"dfs.{_AZURE_DOMAIN}", f"blob.{_AZURE_DOMAIN}"):
            raise ValueError(
                f"it names no account of dfs.{_AZURE_DOMAIN}: {_AZURE_FORMS}; a store in another domain is named by "
                "spec.source.options.endpoint"
            )
    if not _AZURE_ACCOUNT.fullmatch(account) or not _AZURE_CONTAINER.fullmatch(container):
        raise ValueError(f"it names no account and container as Azure has them: {_AZURE_FORMS}")
    return SourceUri("az", f"{account}/{container}", "/".join(below))


def _repository(kind: str, pieces: list[str]) -> SourceUri:
    if kind not in HUB_KINDS:
        kind, pieces = HUB_KINDS[1], [kind, *pieces]
    if len(pieces) < 2:
        raise ValueError(
            "the repository is missing: hf://datasets/OWNER/NAME, or hf://OWNER/NAME for a model"
        )
    for piece in pieces[:2]:
        if "@" in piece:
            raise ValueError(f"{piece!r} names a revision: put it into spec.source.options.revision")
        if not _REPOSITORY.fullmatch(piece):
            raise ValueError(f"{piece!r} is no name of an owner or a repository")
    return SourceUri("hf", kind, "/".join(pieces))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a store answers.

    Attributes:
        scheme: `http` or `https`.
        host: a name in lower case without a dot at its end, or the plain form of an address.
        port: its number, also where the URL names none.
    """

    scheme: str
    host: str
    port: int

    def at(self, address: str) -> "Endpoint":
        """The same endpoint by one of its addresses."""
        return Endpoint(self.scheme, address, self.port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")


def canonical_endpoint(url: str) -> Endpoint:
    """An endpoint in its one form: two spellings of one become equal.

    Raises:
        ValueError: It is no plain `http[s]://HOST[:PORT]`; the text says what is wrong with it. A user before the host,
            a path, or what some resolvers read as an IPv4 address (`0x7f.1`, `2130706433`, `[::ffff:7f00:1]`) is no
            plain one.
    """
    parts = _ENDPOINT.fullmatch(url)
    if parts is None:
        raise ValueError(
            "it is no plain http://HOST[:PORT] or https://HOST[:PORT], without user, path or query"
        )
    scheme = parts["scheme"].lower()
    port = int(parts["port"]) if parts["port"] else _PORTS[scheme]
    if not 0 < port < 1 << 16:
        raise ValueError(f"{port} is no port")
    return Endpoint(scheme, _checked_host(parts["host"].lower()), port)


def amazon_endpoint(region: str) -> str:
    """The URL of Amazon S3 in a region, in the partition that the region is of."""
    domain = next(
        (name for begin, name in AMAZON_DOMAINS.items() if region.startswith(begin)), "amazonaws.com"
    )
    return f"https://s3.{region}.{domain}"


def uses_path_style(options: Mapping[str, str], *, bucket: str) -> bool:
    """Whether the bucket stands in the path of a store's URL, and not in front of its host.

    Where `pathStyle` does not say it: with an endpoint of one's own, and for a bucket with dots in its name, in front
    of which no certificate of Amazon's is valid (`*.s3.amazonaws.com` stands for one label).

    Args:
        options: of the source, `endpoint` and `pathStyle`.
    """
    named = options.get("pathStyle", "")
    return named == "true" if named else bool(options.get("endpoint")) or "." in bucket


def _checked_host(host: str) -> str:
    if host.startswith("["):
        try:
            address = IPv6Address(host[1:-1])
        except ValueError as error:
            raise ValueError(f"{host} is no address") from error
        if address.ipv4_mapped is not None:
            raise ValueError(f"{host} is no plain address: it is {address.ipv4_mapped} in another form")
        return str(address)
    name = host.removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host!r} is no host's name")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except ValueError as error:
            raise ValueError(f"{host} is no plain address of four decimal numbers") from error
    return name


def _check_piece(piece: str) -> None:
    """Refuse a piece of a path that is, or may be decoded to, a step to another folder."""
    read = piece
    for _ in range(_DECODINGS):
        plain = unicodedata.normalize("NFKC", read)
        for form in (read, plain):
            if form.strip() in _DOTS:
                raise ValueError(f"its piece {piece!r} leads to another folder")
            if form != piece and (any(mark in form for mark in "/\\") or _has_control(form)):
                raise ValueError(
                    f"its piece {piece!r} stands for a slash, a backslash or a control character"
                )
        decoded = unquote(read)
        if decoded == read:
            return
        read = decoded
    raise ValueError(f"its piece {piece!r} is encoded more than {_DECODINGS - 1} times")


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character) in _UNPRINTABLE for character in text)
