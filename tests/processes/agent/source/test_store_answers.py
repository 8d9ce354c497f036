"""What stores answer in ways of their own: errors with a reason, ETags in another form, objects that are unpacked."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.processes.agent.source.test_source_faults import SECRET, Bucket, version_of
from tests.support.dataplane.agents import running_agent
from tests.support.waiting import eventually_async

DENIED_BY_KMS = (
    "User: arn:aws:iam::1:user/x may not perform: kms:Decrypt\n on resource: arn:aws:kms:eu-west-1:1:key/2"
)


def document(code: str, message: str, more: str = "") -> bytes:
    return (
        f"<?xml version='1.0'?>\n<Error>\n  <Code>{code}</Code>\n  <Message>{message}</Message>{more}</Error>"
    ).encode()


class Store(Bucket):
    """A bucket whose store answers in its own way.

    Attributes:
        documents: status and document of the answer for single files.
        spelled: the ETag of an answer, from the one that was listed.
        condition: the If-Match that it understands, from the one that was listed.
        unpacks: names of files that it gives unpacked and without a length to who does not accept gzip.
        region: in which requests are to be signed; empty: any.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.documents: dict[str, tuple[int, bytes]] = {}
        self.spelled: Callable[[str], str] = str
        self.condition: Callable[[str], str] = str
        self.unpacks: set[str] = set()
        self.region = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = unquote(request.path.partition("?")[0]).removeprefix("/bucket/data/")
        self.requests.append(name)
        status, body, headers = 200, self.files[name], {}
        condition = request.headers.get("If-Match")
        if condition not in (None, self.condition(self.etag(name))):
            status, body = (
                412,
                document(
                    "PreconditionFailed", "At least one of the preconditions you specified did not hold"
                ),
            )
        if name in self.documents:
            status, body = self.documents[name]
        signed = f"{request.headers.get('Authorization')} {unquote(request.path)}"
        if self.region and f"/{self.region}/s3" not in signed:
            status = 400
            body = document(
                "AuthorizationHeaderMalformed",
                f"the region 'us-east-1' is wrong; expecting '{self.region}'",
                f"<Region>{self.region}</Region>",
            )
        if (
            status == 200
            and name in self.unpacks
            and "gzip" not in request.headers.get("Accept-Encoding", "")
        ):
            self._send_unpacked(request, name)
            return
        if status == 200 and (byte_range := request.headers.get("Range")):
            begin, _, end = byte_range.removeprefix("bytes=").partition("-")
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(body)}"
            status, body = 206, body[int(begin) : int(end) + 1]
        request.send_response(status)
        for header, value in headers.items():
            request.send_header(header, value)
        request.send_header("ETag", self.spelled(self.etag(name)))
        request.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _send_unpacked(self, request: BaseHTTPRequestHandler, name: str) -> None:
        body = gzip.decompress(self.files[name])
        request.send_response(200)
        request.send_header("ETag", f"W/{self.etag(name)}")
        request.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))


@contextmanager
def a_store(count: int = 20) -> Iterator[Store]:
    store = Store({f"{number:04}": os.urandom(2_000) for number in range(count)})
    try:
        yield store
    finally:
        store.close()


ANSWERS = {
    "archived": (
        403,
        document("InvalidObjectState", "The operation is not valid for the object's storage class"),
    ),
    "kms": (403, document("AccessDenied", DENIED_BY_KMS)),
    "customer key": (
        400,
        document(
            "InvalidRequest",
            "The object was stored using a form of Server Side Encryption. Give the correct parameters.",
        ),
    ),
    "redirected": (
        301,
        document(
            "PermanentRedirect",
            "The bucket you are attempting to access must be addressed using the specified endpoint.",
        ),
    ),
    "keys": (
        403,
        document("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    ),
    "secret": (403, document("AccessDenied", f"you have said {SECRET}")),
    "disabled": (403, document("AllAccessDisabled", "All access to this object has been disabled")),
}
SAID = {
    "archived": ("archived", "InvalidObjectState (The operation is not valid for the object's storage class"),
    "kms": ("kms:Decrypt for that key", " ".join(DENIED_BY_KMS.split())),
    "customer key": ("SSE-C", "InvalidRequest (The object was stored using a form of Server Side Encryption"),
    "redirected": ("another address", "PermanentRedirect (The bucket you are attempting to access"),
    "keys": ("refuses the credentials", "InvalidAccessKeyId (The AWS Access Key Id you provided"),
    "secret": ("refuses the credentials or the file", "you have said [hidden]"),
    "disabled": ("has closed the account", "AllAccessDisabled (All access to this object"),
}


@pytest.mark.parametrize("kind", sorted(ANSWERS))
async def test_files_that_a_store_refuses_are_named_with_what_it_says(tmp_path: Path, kind: str) -> None:
    with a_store() as store:
        refused = sorted(store.files)[:3]
        store.documents = dict.fromkeys(refused, ANSWERS[kind])
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await eventually_async(lambda: agent.mount().held_bytes == 17 * 2_000, deadline=60)
            await eventually_async(lambda: agent.mount().failed_count == 3, deadline=60)
            state = agent.mount()
            assert {failure.path for failure in state.failed} == set(refused)
            for failure in state.failed:
                assert all(words in failure.reason for words in SAID[kind]), failure.reason
                assert SECRET not in failure.reason
            assert not state.source_away


@pytest.mark.parametrize("kind", ["archived", "keys", "redirected"])
@pytest.mark.failure_mode("store-refuses-files")
async def test_what_a_store_says_of_every_file_is_one_failure_of_the_source(
    tmp_path: Path, kind: str
) -> None:
    with a_store(400) as store:
        store.documents = dict.fromkeys(store.files, ANSWERS[kind])
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await eventually_async(lambda: agent.mount().source_away, deadline=60)
            first = len(store.requests)
            await eventually_async(lambda: len(store.requests) >= first + 3, deadline=60)
            state = agent.mount()
            assert state.failed_count == 0
            (failure,) = state.failed
            assert all(words in failure.reason for words in SAID[kind]), failure.reason
            assert len(store.requests) < 100, "not one request for each file"

            store.documents = {}
            await agent.holds(version, deadline=60)
            assert agent.mount().failed == ()
            assert not agent.mount().source_away


async def test_single_files_among_many_that_are_refused_are_found_and_loaded(tmp_path: Path) -> None:
    with a_store(120) as store:
        store.documents = dict.fromkeys(sorted(store.files)[:80], ANSWERS["archived"])
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await eventually_async(lambda: agent.mount().held_bytes == 40 * 2_000, deadline=90)
            await eventually_async(lambda: agent.mount().failed_count == 80, deadline=90)
            assert not agent.mount().source_away


async def test_the_region_that_a_store_names_is_asked_in(tmp_path: Path) -> None:
    with a_store() as store:
        store.region = "eu-west-1"
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await agent.holds(version, deadline=60)
            assert agent.content(version) == store.files


@pytest.mark.parametrize(
    "spelled",
    [lambda etag: etag.strip('"'), lambda etag: f"W/{etag}", str.upper, lambda etag: f" {etag}"],
    ids=["without quotes", "weak", "upper case", "with spaces"],
)
async def test_an_etag_in_another_form_is_the_same_one(tmp_path: Path, spelled: Callable[[str], str]) -> None:
    with a_store() as store:
        store.etags = {name: f'"{number:032x}-2"' for number, name in enumerate(store.files, 0xABC)}
        store.spelled = spelled
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await agent.holds(version, deadline=60)
            assert len(store.requests) == 20


@pytest.mark.parametrize("kind", ["without quotes", "never"])
async def test_a_store_that_misunderstands_a_condition_is_asked_without_one(
    tmp_path: Path, kind: str
) -> None:
    with a_store() as store:
        store.condition = (lambda etag: etag.strip('"')) if kind == "without quotes" else (lambda _: "")
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await agent.holds(version, deadline=60)
            assert agent.content(version) == store.files
            assert len(store.requests) <= 20 + 2 * 16, "no longer with it once that is known"


async def test_a_file_that_has_changed_is_not_taken_from_a_store_that_misunderstands_a_condition(
    tmp_path: Path,
) -> None:
    with a_store() as store:
        version = version_of(store, tmp_path)
        store.condition = lambda _: ""
        store.etags = {"0003": '"another"'}
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await eventually_async(lambda: agent.mount().held_bytes == 19 * 2_000, deadline=60)
            await eventually_async(lambda: agent.mount().failed_count == 1, deadline=60)
            assert [(failure.path, failure.code) for failure in agent.mount().failed] == [("0003", "Changed")]


async def test_an_object_that_a_store_unpacks_on_its_way_is_kept_as_it_is_stored(tmp_path: Path) -> None:
    with a_store() as store:
        packed = {f"z{number}.json": gzip.compress(b"x" * 3_000 + os.urandom(90)) for number in range(3)}
        store.files |= packed
        store.unpacks = set(packed)
        version = version_of(store, tmp_path)
        async with running_agent(tmp_path / "one") as agent:
            agent.give(version.assignment(), manifests=version)
            await agent.holds(version, deadline=60)
            assert agent.content(version) == store.files
