"""Pages of Azure's listings: folders are no files, and names that XML cannot hold come encoded."""

import pytest

from tdcs.api.source_uri import canonical_source_uri, endpoint_of
from tdcs.listing.azure_page import AzurePage
from tdcs.listing.listed_page import NamedFile
from tdcs.listing.page_requests import PageError


def blob(name: str, *, size: int = 3, more: str = "", metadata: str = "") -> str:
    return (
        f"<Blob>{name}<Properties><Etag>0x8D</Etag><Content-Length>{size}</Content-Length>{more}</Properties>"
        f"{metadata}</Blob>"
    )


def page(*blobs: str, marker: str = "<NextMarker />") -> bytes:
    text = '<?xml version="1.0"?><EnumerationResults ContainerName="c"><Prefix>d/</Prefix><Blobs>'
    return f"\ufeff{text}{''.join(blobs)}</Blobs>{marker}</EnumerationResults>".encode()


def taken(document: bytes) -> tuple[list[NamedFile], str]:
    sink = AzurePage(b"d/")
    sink.add(document)
    after = sink.finish()
    return list(sink.files), after


def test_folders_of_every_making_are_no_files() -> None:
    hadoop = "<Metadata><Hdi_isfolder>true</Hdi_isfolder></Metadata>"
    document = page(
        blob("<Name>d/a</Name>"),
        blob("<Name>d/b</Name>", size=0, more="<ResourceType>directory</ResourceType>"),
        blob("<Name>d/c</Name>", size=0, metadata=hadoop),
        blob("<Name>d/e/</Name>", size=0),
        blob("<Name>d/empty</Name>", size=0, more="<ResourceType>file</ResourceType>"),
        blob("<Name>d/f</Name>", size=5, metadata=hadoop),
        marker="<NextMarker>2!92!MDAw</NextMarker>",
    )
    files, after = taken(document)
    assert [(path, size) for path, size, _ in files] == [(b"a", 3), (b"empty", 0), (b"f", 5)]
    assert {tag for _, _, tag in files} == {b'"0x8D"'}
    assert after == "2!92!MDAw"


def test_names_are_unescaped_and_decoded_as_they_say() -> None:
    files, after = taken(
        page(blob("<Name>d/a&amp;b%20+</Name>"), blob('<Name Encoded="true">d/c%EF%BF%BE+</Name>'))
    )
    assert [path for path, _, _ in files] == [b"a&b%20+", b"c\xef\xbf\xbe+"]
    assert after == ""


@pytest.mark.parametrize(
    "document",
    [
        page(blob("<Name>d/a</Name>"))[:-5],
        b"<ListBucketResult></ListBucketResult>",
        page("<Blob><Name>d/a</Name></Blob>"),
        page("<Blob><Name>d/a</Name><Properties>"),
        page(blob("<Name>other/a</Name>")),
    ],
)
def test_what_is_no_whole_page_is_refused(document: bytes) -> None:
    with pytest.raises(PageError):
        taken(document)


def test_two_spellings_of_a_container_are_one_source() -> None:
    plain = canonical_source_uri("az://account/data/a//b/")
    assert plain == "az://account/data/a/b"
    for domain in ("dfs", "blob"):
        second_spelling = f"abfss://data@account.{domain}.core.windows.net/a/b"
        assert canonical_source_uri(second_spelling) == plain
        assert endpoint_of(second_spelling, named=None) == "https://account.blob.core.windows.net"
    assert endpoint_of(plain, named=None) == "https://account.blob.core.windows.net"
    assert canonical_source_uri("az://account/$web") == "az://account/$web"


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "az://account",
            "az://ac/data",
            "az://account/Data",
            "az://account/da--ta",
            "az://account.evil.example/data",
        ),
        *(
            "abfss://data@account.dfs.evil.example/a",
            "abfss://account/data",
            "az://a@b.blob.core.windows.net",
        ),
    ],
)
def test_what_names_no_container_of_an_account_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="az://"):
        canonical_source_uri(uri)
