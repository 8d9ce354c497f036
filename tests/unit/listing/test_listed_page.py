"""The tags of a page's objects, however a store spells them."""

from __future__ import annotations

import pytest

from tdcs.listing.listed_page import ListedPage

HASH = "d41d8cd98f00b204e9800998ecf8427e"


def tag_of(etag: str) -> bytes:
    page = ListedPage(b"data/")
    page.add(
        b"<ListBucketResult><Contents><Key>data/a</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
        b"<ETag>%b</ETag><Size>1</Size></Contents></ListBucketResult>" % etag.encode()
    )
    page.finish()
    (file,) = page.files
    return file.tag


@pytest.mark.parametrize(
    "etag",
    [
        f"&quot;{HASH}&quot;",
        f"&#34;{HASH}&#34;",
        f"&#x22;{HASH}&#x22;",
        f'"{HASH}"',
        HASH,
        f'W/"{HASH}"',
        f" &quot;{HASH}&quot; ",
    ],
)
def test_an_etag_is_the_same_tag_in_every_spelling(etag: str) -> None:
    assert tag_of(etag) == f'"{HASH}"'.encode()


@pytest.mark.parametrize("plain", [f"{HASH}-12", HASH.upper(), "0x8D9-x/y", "a&b", "é"])
def test_what_an_etag_says_is_kept_to_the_letter(plain: str) -> None:
    assert tag_of(f"&quot;{plain.replace('&', '&amp;')}&quot;") == f'"{plain}"'.encode()


def test_an_empty_etag_gives_the_time_and_a_long_one_its_hash() -> None:
    assert tag_of("&quot;&quot;").startswith(b"mtime-ms:")
    assert tag_of(f"&quot;{'a' * 126}&quot;") == f'"{"a" * 126}"'.encode()
    assert tag_of(f"&quot;{'a' * 127}&quot;").startswith(b"long-etag:")
