"""A page of the listing of a bucket of Google Cloud Storage."""

from typing import Annotated, Final

import msgspec

from tdcs.listing.listed_page import ListedPage
from tdcs.listing.page_requests import PageError
from tdcs.model.file_ids import plain_etag


class _Object(msgspec.Struct, frozen=True):
    """An object as the API names it: numbers are strings."""

    name: str
    size: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    generation: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,20}$")]


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    items: list[_Object] = []
    prefixes: list[str] = []
    next_page_token: str = ""


class GooglePage(ListedPage):
    """The sink of a page. The tag of an object is its generation: it has another one whenever it is written.

    Args:
        after: the key behind which the listing goes on, which may come again.
    """

    def __init__(self, prefix: bytes, *, after: bytes = b"") -> None:
        super().__init__(prefix)
        self._after: Final = after

    def finish(self) -> str:
        text = self.taken()
        try:
            page = msgspec.json.decode(text, type=_Page)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise PageError(f"a page is none of Google Cloud Storage, or was cut off: {error}") from error
        self.folders = [_bytes(prefix) for prefix in page.prefixes]
        items = [(_bytes(item.name), item) for item in page.items]
        if items and items[0][0] == self._after:
            del items[0]
        self.take(
            [key for key, _ in items],
            [int(item.size) for _, item in items],
            [plain_etag(item.generation).encode() for _, item in items],
        )
        return page.next_page_token


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
