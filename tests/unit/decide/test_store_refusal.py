"""What error answers of stores mean, in the forms in which stores and what stands before them give them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.error_document import LONGEST_ANSWER, StoreAnswer, read_answer
from tdcs.decide.store_refusal import Cause, judge


def xml(code: str, message: str = "") -> str:
    return f'<?xml version="1.0"?>\n<Error>\n<Code>{code}</Code>\n<Message>{message}</Message>\n</Error>'


@pytest.mark.parametrize(
    ("status", "document", "cause", "words"),
    [
        (403, xml("AccessDenied", "Access Denied"), Cause.DENIED, "(403): AccessDenied (Access Denied)"),
        (403, xml("SignatureDoesNotMatch"), Cause.KEYS, "(403): SignatureDoesNotMatch"),
        (
            400,
            xml("ExpiredToken", "The token has\nexpired."),
            Cause.TOKEN,
            "(400): ExpiredToken (The token has expired)",
        ),
        (403, xml("RequestTimeTooSkewed"), Cause.CLOCK, "(403): RequestTimeTooSkewed"),
        (403, xml("AccessDenied", "User: x is not authorized to perform: kms:Decrypt"), Cause.KMS, None),
        (400, xml("KMS.DisabledException", "the key is disabled"), Cause.KMS, None),
        (400, xml("KMS.ThrottlingException", "too fast"), Cause.BUSY, None),
        (403, xml("InvalidObjectState", "not valid for the object's storage class"), Cause.ARCHIVED, None),
        (
            409,
            xml("BlobArchived", "This operation is not permitted on an archived blob."),
            Cause.ARCHIVED,
            None,
        ),
        (
            400,
            xml("InvalidRequest", "stored using a form of Server Side Encryption. The correct parameters"),
            Cause.CUSTOMER_KEY,
            None,
        ),
        (
            400,
            xml("UserProjectMissing", "Bucket is a requester pays bucket but no user project"),
            Cause.PAYER,
            None,
        ),
        (400, xml("RequestTimeout"), Cause.BUSY, None),
        (
            503,
            xml("SlowDown", "Please reduce your request rate."),
            Cause.BUSY,
            "(503): SlowDown (Please reduce your request rate)",
        ),
        (400, xml("Throttling"), Cause.BUSY, None),
        (404, xml("NoSuchBucket"), Cause.NO_BUCKET, None),
        (404, xml("NoSuchKey"), Cause.MISSING, None),
        (412, xml("PreconditionFailed"), Cause.CHANGED, None),
        (416, "", Cause.SHORTER, "(416)"),
        (400, xml("KeyTooLongError"), Cause.NAME, None),
        (301, xml("PermanentRedirect"), Cause.REGION, None),
        (307, "", Cause.REDIRECTED, "(307)"),
        (500, xml("InternalError"), Cause.SILENT, None),
        (400, xml("Spoiled"), Cause.REFUSED, None),
        (405, xml("MethodNotAllowed"), Cause.REFUSED, None),
        (418, "", Cause.REFUSED, "(418)"),
        (
            403,
            "\ufeff"
            + xml(
                "AuthenticationFailed",
                "Server failed to authenticate the request.\nRequestId:5ef2-11\nTime:2026-11-29T15:00:00.1Z",
            ),
            Cause.KEYS,
            "(403): AuthenticationFailed (Server failed to authenticate the request)",
        ),
        (
            403,
            json.dumps(
                {"error": {"code": 403, "message": "Permission denied", "errors": [{"reason": "forbidden"}]}}
            ),
            Cause.DENIED,
            "(403): forbidden (Permission denied)",
        ),
        (
            401,
            json.dumps({"error": "Invalid username or password."}),
            Cause.DENIED,
            "(401): Invalid username or password.",
        ),
        (429, json.dumps({"message": "slow"}), Cause.BUSY, "(429): slow"),
        (
            403,
            "<html><head><title>403 Forbidden</title><style>x{}</style></head><body>no</body></html>",
            Cause.DENIED,
            "(403): 403 Forbidden",
        ),
        (502, "upstream  is\r\naway\n", Cause.BUSY, "(502): upstream is away"),
        (
            403,
            "<s3:Error><s3:Code>AccessDenied</s3:Code><s3:Message><![CDATA[a < b]]></s3:Message></s3:Error>",
            Cause.DENIED,
            "(403): AccessDenied (a < b)",
        ),
    ],
)
def test_an_answer_is_taken_for_what_it_says(
    status: int, document: str, cause: Cause, words: str | None
) -> None:
    answer = read_answer(status, document)
    assert judge(answer).cause is cause
    if words is not None:
        assert answer.said == words


@pytest.mark.parametrize(
    ("document", "header", "region"),
    [
        (
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
            "",
            "eu-west-1",
        ),
        (
            xml("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'"),
            "",
            "eu-west-1",
        ),
        (xml("PermanentRedirect"), "ap-south-1", "ap-south-1"),
        (xml("PermanentRedirect"), "evil.example/", ""),
        ("<Error><Code>PermanentRedirect</Code><Region>evil.example/#</Region></Error>", "", ""),
    ],
)
def test_the_region_is_the_one_that_the_store_names(document: str, header: str, region: str) -> None:
    answer = read_answer(400, document, region=header)
    assert answer.region == region
    assert judge(answer).cause is Cause.REGION
    assert not region or region in judge(answer).reason


def test_a_refusal_without_keys_names_the_field_for_them() -> None:
    meaning = judge(read_answer(403, xml("AccessDenied")), keyless=True)
    assert "without keys" in meaning.reason or "no keys" in meaning.reason
    assert "spec.source.secretRef" in meaning.remedy
    assert meaning.of_keys


@pytest.mark.parametrize("cause", ["InvalidAccessKeyId", "ExpiredToken", "AccessDenied"])
def test_keys_that_are_refused_count_no_more(cause: str) -> None:
    assert judge(read_answer(403, xml(cause))).of_keys


@pytest.mark.parametrize(
    "cause", ["InvalidObjectState", "RequestTimeTooSkewed", "KMS.DisabledException", "SlowDown"]
)
def test_what_says_nothing_of_the_keys_does_not_revoke_them(cause: str) -> None:
    assert not judge(read_answer(403, xml(cause))).of_keys


@given(st.integers(min_value=100, max_value=599), st.text(max_size=300) | st.binary(max_size=300))
def test_any_answer_has_one_short_line(status: int, document: str | bytes) -> None:
    answer = read_answer(status, document)
    assert len(answer.said) < 500
    assert answer.said.isprintable()
    assert judge(answer).reason


@pytest.mark.parametrize(
    "document",
    [
        "<Code>" * 10_000,
        "<Code " * 10_000,
        "<Code><![CDATA[" * 4_000,
        "<Code>x</Code>" + "<Message>" * 6_600,
        "<Code>x</Code>" + "<Region " * 7_500,
        "<aaaaaaa:" * 6_600,
        "<" * 60_000,
        "<" + "a" * 60_000,
        "<style>" * 8_500,
        "<title" * 10_000,
        " " * 60_000 + "x",
        "&#32;" * 12_000 + "x",
        ";" + "\n" * 60_000,
        "Request Id: " * 5_000,
    ],
    ids=lambda document: ascii(document[:16]),
)
def test_a_document_made_to_be_slow_is_read_in_a_short_time(document: str) -> None:
    begun = time.process_time()
    answer = read_answer(403, document)
    assert judge(answer).cause is Cause.DENIED
    assert time.process_time() - begun < 5


def test_what_stands_at_the_beginning_of_a_long_document_is_read() -> None:
    answer = read_answer(404, xml("NoSuchKey", "The key does\n\nnot exist.") + "<Detail>" + "x" * 60_000)
    assert answer.said == "(404): NoSuchKey (The key does not exist)"


def test_a_code_behind_much_white_space_is_read() -> None:
    document = "<Error>" + " \n" * 20_000 + "<Code>\n<![CDATA[NoSuchKey]]>\n</Code></Error>"
    assert read_answer(404, document).code == "NoSuchKey"


TOKEN = "FwoGZXIvYXdzEB" + "Qz7" * 60


@pytest.mark.parametrize(
    "document",
    [
        xml("ExpiredToken", "x" * 250 + f" {TOKEN}"),
        xml("ExpiredToken", TOKEN * 3),
        xml(TOKEN),
        json.dumps({"error": TOKEN}),
        json.dumps({"error": {"code": TOKEN, "message": "x " * 130 + TOKEN}}),
        "<p>" * 2_700 + f" {TOKEN}",
        " " * (LONGEST_ANSWER - 20) + TOKEN,
    ],
    ids=lambda document: ascii(document.strip()[:16]),
)
def test_no_part_of_a_session_token_is_kept_alone(document: str) -> None:
    """What is shown has secrets taken out, which are found as a whole."""
    assert "FwoGZX" not in read_answer(403, document).said
    assert "FwoGZX" not in read_answer(403, document[:LONGEST_ANSWER].encode()).said


def test_a_long_message_ends_behind_a_word() -> None:
    message = read_answer(403, xml("AccessDenied", "abcdefg " * 60)).message
    assert message.endswith("abcdefg …")
    assert 290 < len(message) <= 302


@pytest.mark.parametrize(
    ("status", "code", "message", "cause"),
    [
        (404, "NoSuchKey", "No such object: b/KMS/x.bin", Cause.MISSING),
        (404, "NoSuchKey", "No such object: b/aws:kms:/x", Cause.MISSING),
        (404, "", "No such object: b/KMS/x.bin", Cause.MISSING),
        (404, "NoSuchKey", "No such object: b/request time is too old", Cause.MISSING),
        (404, "NoSuchBucket", "no bucket KMS", Cause.NO_BUCKET),
        (404, "XAdminUserNotFound", "The specified user does not exist", Cause.KEYS),
        (412, "PreconditionFailed", "b/KMS/x.bin", Cause.CHANGED),
        (416, "InvalidRange", "b/KMS/x.bin", Cause.SHORTER),
        (403, "InvalidAccessKeyId", "bucket requester-pays-data denied", Cause.KEYS),
        (400, "ExpiredToken", "b/KMS/customer-supplied keys", Cause.TOKEN),
        (403, "AuthenticationFailed", "Request date header too old", Cause.CLOCK),
        (403, "AccessDenied", "not authorized to perform: kms:Decrypt", Cause.KMS),
        (
            403,
            "AccessDenied",
            "User: arn:aws:sts::1:assumed-role/KMS-reader/x is not authorized to perform: s3:GetObject",
            Cause.DENIED,
        ),
        (403, "AccessDenied", 'bucket "requester-pays" denies "kms:x"', Cause.DENIED),
    ],
)
def test_the_words_of_an_objects_name_mean_nothing_next_to_a_code(
    status: int, code: str, message: str, cause: Cause
) -> None:
    assert judge(StoreAnswer(status=status, code=code, message=message)).cause is cause
