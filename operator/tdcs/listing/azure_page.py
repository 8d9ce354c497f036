"""A page of the listing of a container of Azure Blob Storage."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from tdcs.listing.listed_page import ListedPage, unescaped
from tdcs.listing.page_requests import PageError
from tdcs.model.file_ids import known_tag, plain_etag

_BEGIN: Final = b"<EnumerationResults"
_END: Final = b"</EnumerationResults>"
_ITEM: Final = b"<Blob>"
_BLOB: Final = re.compile(rb"<Blob>(.*?)</Blob>", re.DOTALL)
_NAME: Final = re.compile(rb'<Name( Encoded="true")?>([^<]*)</Name>')
_SIZE: Final = re.compile(rb"<Content-Length>(\d{1,19})</Content-Length>")
_TAG: Final = re.compile(rb"<Etag>([^<]+)</Etag>", re.IGNORECASE)
_MARKER: Final = re.compile(rb"<NextMarker>([^<]{1,8192})</NextMarker>")
_FOLDER: Final = re.compile(
    rb"<ResourceType>directory</ResourceType>|<hdi_isfolder>true</hdi_isfolder>", re.IGNORECASE
)
"""How a folder differs from an empty blob: of a hierarchical namespace, and as programs of Hadoop make one."""


class AzurePage(ListedPage):
    """The sink of a page. The tag of a blob is its ETag, which is another one whenever it is written."""

    def finish(self) -> str:
        text = self.taken()
        if not text.rstrip().endswith(_END) or _BEGIN not in text:
            raise PageError("a page is none of Azure Blob Storage, or was cut off")
        blobs = _BLOB.findall(text)
        if len(blobs) != text.count(_ITEM):
            raise PageError(f"a page of {text.count(_ITEM)} blobs has the ends of {len(blobs)}")
        keys, sizes, tags = list[bytes](), list[int](), list[bytes]()
        for blob in blobs:
            name, size, tag = _NAME.search(blob), _SIZE.search(blob), _TAG.search(blob)
            if name is None or size is None or tag is None:
                raise PageError("a blob of a page has no name, no length or no ETag")
            if not int(size[1]) and _FOLDER.search(blob):
                continue
            keys.append(unquote_to_bytes(name[2]) if name[1] else unescaped(name[2]))
            sizes.append(int(size[1]))
            tags.append(known_tag(plain_etag(unescaped(tag[1]).decode("utf-8", "replace"))).encode())
        self.take(keys, sizes, tags)
        marker = _MARKER.search(text)
        return unescaped(marker[1]).decode("utf-8", "replace") if marker is not None else ""
