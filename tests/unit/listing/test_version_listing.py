"""A bucket that keeps versions is listed as it was at a time."""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from tests.support.dataplane.listed_source import files_of, listed
from tests.support.programs.http_store import http_store

from tdcs.model.cache_engine import NO_KEYS, Source, SourceError

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


class Bucket:
    """A store that lists versions as S3 does: by key, the last one first, in pages.

    Attributes:
        versions: key, seconds at which it was written, and its length; None for a marker of its deletion.
        markers_first: whether it names the markers before all versions of a page, as some do.
    """

    def __init__(self) -> None:
        self.versions: list[tuple[str, int, int | None]] = []
        self.markers_first = False
        self.page = 1000
        self.null = False
        self.address = ""
        self.asked: list[dict[str, list[str]]] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
        self.asked.append(query)
        prefix = query["prefix"][0]
        rows = [
            (key, -number, f"id-{number}", second, length)
            for number, (key, second, length) in enumerate(self.versions)
            if key.startswith(prefix)
        ]
        ordered = sorted(rows, key=lambda each: (each[0].encode(), each[1]))
        latest = {key: identity for key, _, identity, _, _ in reversed(ordered)}
        marker, behind = query.get("key-marker", [""])[0], query.get("version-id-marker", [""])[0]
        if marker and behind:
            (place,) = [at for at, row in enumerate(ordered) if (row[0], row[2]) == (marker, behind)]
            ordered = ordered[place + 1 :]
        elif marker:
            ordered = [row for row in ordered if row[0].encode() > marker.encode()]
        page, behind_page = ordered[: self.page], ordered[self.page :]
        page_shown = sorted(page, key=lambda each: each[4] is not None) if self.markers_first else page
        text = ""
        for key, _, identity, second, length in page_shown:
            kind = "DeleteMarker" if length is None else "Version"
            time = (
                (BEGIN + timedelta(seconds=second)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            )
            text += (
                f"<{kind}><Key>{quote(key)}</Key><VersionId>{'null' if self.null else identity}</VersionId>"
                f"<IsLatest>{str(latest[key] == identity).lower()}</IsLatest><LastModified>{time}</LastModified>"
                + (f"<ETag>&quot;{second:x}&quot;</ETag><Size>{length}</Size>" if length is not None else "")
                + f"</{kind}>"
            )
        more = ""
        if behind_page:
            more = (
                f"<NextKeyMarker>{quote(page[-1][0])}</NextKeyMarker>"
                f"<NextVersionIdMarker>{html.escape(page[-1][2])}</NextVersionIdMarker>"
            )
        body = (
            f"<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>{str(bool(behind_page)).lower()}</IsTruncated>"
            f"{more}{text}</ListVersionsResult>"
        ).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    with http_store(bucket.answer) as bucket.address:
        yield bucket


def source_of(bucket: Bucket, second: float) -> Source:
    as_of = (BEGIN + timedelta(seconds=second)).isoformat()
    options = {"endpoint": f"http://{bucket.address}", "asOf": as_of}
    return Source(uri="s3://pictures/data", options=options, credentials=NO_KEYS)


@pytest.mark.parametrize("markers_first", [False, True])
@pytest.mark.parametrize("page", [1, 2, 3, 1000])
async def test_each_object_has_the_version_that_it_had(
    bucket: Bucket, tmp_path: Path, page: int, markers_first: bool
) -> None:
    bucket.page, bucket.markers_first = page, markers_first
    bucket.versions = [
        ("data/a", 10, 1),
        ("data/a", 20, 2),
        ("data/a", 30, 3),
        ("data/deleted", 10, 4),
        ("data/deleted", 20, None),
        ("data/deleted", 30, 5),
        ("data/same moment", 20, 6),
        ("data/same moment", 20, 7),
        ("data/ümlaut+&", 5, 8),
        ("data/z/new", 25, 9),
        ("database", 5, 1),
    ]
    at = {
        4: {},
        5: {"ümlaut+&": 8},
        15: {"a": 1, "deleted": 4, "ümlaut+&": 8},
        20: {"a": 2, "same moment": 7, "ümlaut+&": 8},
        29.5: {"a": 2, "same moment": 7, "ümlaut+&": 8, "z/new": 9},
        30: {"a": 3, "deleted": 5, "same moment": 7, "ümlaut+&": 8, "z/new": 9},
    }
    for second, files in at.items():
        if files:
            assert files_of(await listed(source_of(bucket, second), tmp_path)) == files, second
    tags = set()
    manifest = await listed(source_of(bucket, 20), tmp_path)
    for file in range(len(manifest)):
        tags.add(manifest.tag(file))
    assert tags == {'"v=id-1"', '"v=id-7"', '"v=id-8"'}


async def test_what_is_written_later_changes_nothing(bucket: Bucket, tmp_path: Path) -> None:
    bucket.versions = [("data/a", 10, 1), ("data/b", 10, 2)]
    before = await listed(source_of(bucket, 20), tmp_path)
    bucket.versions += [("data/a", 30, 3), ("data/b", 31, None), ("data/c", 32, 4)]
    assert (await listed(source_of(bucket, 20), tmp_path)).digest == before.digest


async def test_a_bucket_without_versions_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.versions, bucket.null = [("data/a", 10, 1)], True
    with pytest.raises(SourceError, match=r"none of its objects has a version.*without asOf"):
        await listed(source_of(bucket, 20), tmp_path)


async def test_the_time_to_come_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"spec\.source\.options\.asOf\) has not come yet"):
        await listed(source_of(bucket, 1e9), tmp_path)
    assert bucket.asked == []
