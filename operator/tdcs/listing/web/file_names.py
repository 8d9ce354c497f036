"""What documents of web servers name: links of a page, or a list of files with what is known of each.

Whoever writes such a document chooses the names, so that none leads outside of the folder it is of.
"""

import re
from collections.abc import Collection, Iterator
from html.parser import HTMLParser
from io import BytesIO
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

import msgspec

from tdcs.model.file_blocks import BLOCK_SIZE
from tdcs.model.file_ids import content_tag

_SHA_LINE: Final = re.compile(rb"\\?([0-9a-fA-F]{64})[ \t]+[* ]?(.+)")
"""A line of `sha256sum`."""
_SHA: Final = re.compile(r"[0-9a-fA-F]{64}")
_LONGEST_LINE: Final = 16_384
_ANY_HOST: Final = "page.invalid"


class NamesError(ValueError):
    """A document does not name files. The text says what is wrong with it, as a clause."""


class NamedFile(NamedTuple):
    """A file that a document names: its path below the source, and its length and SHA-256 where it says them."""

    path: bytes
    length: int | None = None
    sha256: str = ""

    @property
    def tag(self) -> bytes:
        """Its tag where nothing else needs to be asked of it: the hash of its content. Only what is kept as one block
        is compared with a hash."""
        is_hashed = self.sha256 and self.length is not None and self.length <= BLOCK_SIZE
        return content_tag(self.sha256) if is_hashed else b""


class PageLinks(NamedTuple):
    """Links of a page that lead to what is in its folder, by their paths below the source."""

    files: list[bytes]
    folders: list[bytes]


class _Entry(msgspec.Struct, frozen=True):
    """A file as JSON names it; members with other names say nothing."""

    path: str = ""
    name: str = ""
    size: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    sha256: str = ""


def is_page(content: bytes) -> bool:
    """Whether a document is HTML."""
    return content[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def page_links(content: bytes, *, base: str, folder: bytes, hosts: Collection[str] = ()) -> PageLinks:
    """The links of an HTML page.

    Args:
        content: of the page.
        base: encoded path of the source's folder on its server, with a slash at its end.
        folder: path of the page below the source, with a slash at its end; empty for the source's own page.
        hosts: what the server is called, with its port, in links that name it.
    """
    parser = _Links()
    parser.feed(content.decode("utf-8", "replace"))
    parser.close()
    page = f"http://{_ANY_HOST}{base}" + "/".join(_quoted(piece) for piece in folder.split(b"/"))
    source = unquote_to_bytes(base)
    files, folders = dict[bytes, None](), dict[bytes, None]()
    for link in parser.links:
        try:
            parts = urlsplit(urljoin(page, link.strip()))
        except ValueError:
            continue
        path = unquote_to_bytes(parts.path)
        # A link with a query is another view of the page, as those that sort it are.
        if parts.netloc not in (_ANY_HOST, *hosts) or parts.query or not path.startswith(source + folder):
            continue
        below = path.removeprefix(source)
        if below != folder and is_below(below.removesuffix(b"/")):
            (folders if below.endswith(b"/") else files)[below] = None
    return PageLinks(list(files), list(folders))


def named_files(content: bytes) -> Iterator[NamedFile]:
    """The files that a list names. Raises NamesError, also while they are given."""
    begin = content[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin == b"[":
        try:
            entries = msgspec.json.decode(content, type=list[_Entry | str])
        except msgspec.MsgspecError as error:
            raise NamesError(f"its JSON is no list of files: {error}") from error
        for number, entry in enumerate(entries, start=1):
            yield _of_entry(entry, f"entry {number}")
        return
    for number, line in enumerate(BytesIO(content.removeprefix(b"\xef\xbb\xbf")), start=1):
        text, where = line.strip(b"\r\n"), f"line {number}"
        if not text.strip():
            continue
        if len(text) > _LONGEST_LINE:
            raise NamesError(f"{where} has more than {_LONGEST_LINE} bytes")
        if begin == b"{":
            try:
                yield _of_entry(msgspec.json.decode(text, type=_Entry), where)
            except msgspec.MsgspecError as error:
                raise NamesError(f"{where} is no object with path, size and sha256: {error}") from error
        elif (hashed := _SHA_LINE.fullmatch(text)) is not None:
            yield NamedFile(_checked(hashed[2], where), sha256=hashed[1].decode())
        else:
            yield NamedFile(_checked(text, where))


def is_below(path: bytes) -> bool:
    """Whether a path leads to something below the folder that it is of."""
    return all(piece not in (b"", b".", b"..") for piece in path.split(b"/")) and b"\0" not in path


def _of_entry(entry: "_Entry | str", where: str) -> NamedFile:
    if isinstance(entry, str):
        return NamedFile(_checked(entry.encode("utf-8", "surrogatepass"), where))
    if entry.sha256 and not _SHA.fullmatch(entry.sha256):
        raise NamesError(f"sha256 of {where} is not 64 hexadecimal digits")
    path = _checked((entry.path or entry.name).encode("utf-8", "surrogatepass"), where)
    return NamedFile(path, entry.size, entry.sha256)


def _checked(path: bytes, where: str) -> bytes:
    plain = path.removeprefix(b"./")
    if not is_below(plain):
        raise NamesError(
            f"{where} names {path[:200].decode('utf-8', 'replace')!r}, which is no path below the source"
        )
    return plain


def _quoted(piece: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in piece)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: Final[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links.extend(value for name, value in attrs if name == "href" and value)
