"""What a source's URI may be: one canonical form, and nothing that leads elsewhere once the engine has read it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.model.cache_engine import Source, SourceError
from tdcs.model.source_paths import canonical_uri, inside

ESCAPES = (
    "file:///nfs/b/x\\..\\..\\..\\secrets",
    "file:///nfs/a/..\\..\\proc",
    "file:///nfs/a/.\t./.\t./proc",
    "file:///nfs/a\t/../b",
    "file:///nfs/a/\n../x",
    "file:///nfs/a/\r..\\..\\etc",
    "file:///nfs/a/../b",
    "file:///nfs/a/..",
    "file:///nfs/a/./b",
    "file:///nfs/a/.. /b",
    "file:///nfs/a/%2e%2e/b",
    "file:///nfs/a/%2E%2E%2Fb",
    "file:///nfs/a/..%5c..%5cb",
    "file:///nfs/a/b\x00c",
    "file:///nfs/a/b\x7f/../c",
    "file:///nfs/a?x/../b",
    "file:///nfs/a#/../b",
    "s3://bucket/..\\..\\other",
    "s3://bucket/a/../../other",
    "s3://bucket/a/%2e%2e/b",
    "s3://user:key@bucket/a",
    "s3://bucket:99/a",
    "s3://bucket\\other/a",
    "s3:\\\\bucket\\a",
)


@pytest.mark.parametrize("uri", ESCAPES)
def test_a_uri_that_could_lead_outside_of_its_source_is_refused_with_a_remedy(uri: str) -> None:
    with pytest.raises(SourceError) as refused:
        canonical_uri(uri)
    assert "spec.source.uri" in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "canonical"),
    [
        ("S3://bucket/a/", "s3://bucket/a"),
        ("s3://bucket//a///b", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("FILE:///nfs/a/", "file:///nfs/a"),
        ("file:///nfs/a..b/c...", "file:///nfs/a..b/c..."),
        ("s3://bucket/100%/ä b:c+d", "s3://bucket/100%/ä b:c+d"),
        ("s3://bucket/.hidden/..data", "s3://bucket/.hidden/..data"),
    ],
)
def test_spellings_of_one_source_become_equal(uri: str, canonical: str) -> None:
    assert canonical_uri(uri) == canonical
    assert canonical_uri(canonical) == canonical


_PIECES = st.lists(
    st.sampled_from(
        ["..", ".", "\\", "/", "%2e", "%5C", "\t", " ", "\n", "a", "b", "..\\", "%2F", "\x0b", "#", "?"]
    ),
    max_size=12,
)


@given(pieces=_PIECES)
def test_no_accepted_folder_leaves_its_root_however_an_engine_reads_it(pieces: list[str]) -> None:
    try:
        uri = canonical_uri("file:///nfs/a/" + "".join(pieces))
    except SourceError:
        return
    folder = uri.removeprefix("file://")
    # Alluxio turns backslashes into slashes, drops tabs and normalises after its checks; a percent sign may be decoded.
    for found in (folder, folder.replace("\\", "/"), folder.replace("\t", ""), folder.replace("%2e", ".")):
        steps: list[str] = []
        for piece in found.split("/"):
            if piece.strip() == "..":
                assert steps, "it leads above the root"
                steps.pop()
            elif piece.strip() not in {"", "."}:
                steps.append(piece)
        assert inside(inner="/" + "/".join(steps), outer="/nfs/a")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file:///", "the folder is missing after the three slashes"),
        ("file:////", "the folder is missing after the three slashes"),
        ("file://data/x", "a folder is absolute: file:///FOLDER, with three slashes"),
    ],
)
def test_a_folder_that_is_not_named_is_what_is_said_to_be_missing(uri: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        canonical_uri(uri)


@pytest.mark.parametrize(
    "endpoint",
    ["http://store.team.svc:7070", "http://store.team.svc.:7070", "HTTP://Store.team.svc:7070/"],
)
def test_a_store_is_asked_by_one_form_of_its_endpoint_however_it_is_written(endpoint: str) -> None:
    options = {"endpoint": endpoint, "region": "r"}
    asked = {"endpoint": "http://store.team.svc:7070", "region": "r"}
    assert Source(uri="s3://bucket/a", options=options).reached_options == asked
    there = Source(uri="s3://bucket/a", options=options, address="10.0.0.1").reached_options
    assert there["endpoint"] == "http://10.0.0.1:7070"


def test_the_endpoint_of_a_folder_is_not_judged() -> None:
    assert Source(uri="file:///nfs/a", options={"endpoint": "odd"}).reached_options == {"endpoint": "odd"}
