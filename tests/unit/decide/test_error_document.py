"""Code, message and region in the document of a store's error."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.error_document import LONGEST_ANSWER, StoreAnswer, read_answer


def code_and_message(document: str | bytes, status: int = 403) -> tuple[str, str]:
    answer = read_answer(status, document)
    return answer.code, answer.message


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (StoreAnswer(status=403, code="AccessDenied", message="no"), "(403): AccessDenied (no)"),
        (StoreAnswer(status=403, code="AccessDenied"), "(403): AccessDenied"),
        (StoreAnswer(status=403, message="no"), "(403): no"),
        (StoreAnswer(status=403), "(403)"),
    ],
)
def test_an_answer_is_quoted_as_far_as_there_is_one(answer: StoreAnswer, text: str) -> None:
    assert answer.said == text


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<Error><Code>A</Code><Message>b c.</Message></Error>", ("A", "b c")),
        ("<s:Error><s:Code>A</s:Code><s:Message>b</s:Message></s:Error>", ("A", "b")),
        ('<Code xml:space="x">A</Code>', ("A", "")),
        ("<Code> <![CDATA[A]]> </Code><Message><![CDATA[x &lt; y]]></Message>", ("A", "x &lt; y")),
        ("<Code>A</Code><Message>x &lt; y</Message>", ("A", "x < y")),
        ("<Code></Code><Message>b</Message>", ("", "b")),
    ],
)
def test_an_xml_document_has_code_and_message(document: str, expected: tuple[str, str]) -> None:
    assert code_and_message(document) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"error": {"code": "A", "message": "b."}}, ("A", "b")),
        ({"error": {"code": 403, "message": "b"}}, ("", "b")),
        ({"error": {"code": 403, "message": "b", "errors": [{"reason": "r"}]}}, ("r", "b")),
        ({"error": {"status": "DENIED"}}, ("DENIED", "")),
        ({"Code": "A", "Message": "b"}, ("A", "b")),
        ({"error": "invalid_grant", "error_description": "b"}, ("invalid_grant", "b")),
        ({"error": {"code": ["A"], "message": {"x": 1}}}, ("", "")),
        ({"error": {"errors": [3], "code": "A"}}, ("A", "")),
        ({"error": None}, ("", '{"error": null}')),
        ({}, ("", "")),
    ],
)
def test_a_json_document_has_code_and_message(document: object, expected: tuple[str, str]) -> None:
    assert code_and_message(json.dumps(document)) == expected


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", ""),
        ("try again later", "try again later"),
        ("<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>", "502 Bad Gateway"),
        ("<html><head><style>p {}</style></head><body><p>not &amp; here</p></body></html>", "not & here"),
        ("[1, 2]", "[1, 2]"),
        (b"caf\xe9", "caf\ufffd"),
        ("a\x00b\u2028c", "a b c"),
    ],
)
def test_any_other_document_is_its_text_on_one_line(document: str | bytes, message: str) -> None:
    assert code_and_message(document) == ("", message)


def test_equal_failures_look_equal_whatever_their_ids_and_times() -> None:
    texts = {
        code_and_message(
            f"<Code>A</Code><Message>no. RequestId:{number}; Time:2026-01-0{number}T00:00:00Z</Message>"
        )
        for number in (1, 2)
    }
    assert len(texts) == 1


def test_the_text_that_a_wrong_signature_is_of_is_left_out() -> None:
    document = (
        "<Code>AuthenticationFailed</Code><Message>failed. RequestId:1</Message>"
        "<AuthenticationErrorDetail>The key is old. The MAC signature found is x</AuthenticationErrorDetail>"
    )
    assert code_and_message(document)[1] == "failed. The key is old"


def test_a_code_too_long_for_one_is_left_out() -> None:
    assert code_and_message(f"<Code>{'A' * 64}</Code>")[0] == "A" * 64
    assert code_and_message(f"<Code>{'A' * 65}</Code>")[0] == ""


def test_a_long_message_is_cut_between_two_words() -> None:
    message = code_and_message(f"<Code>A</Code><Message>{'secret ' * 100}</Message>")[1]
    assert len(message) <= 302
    assert set(message.split()) == {"secret", "…"}
    assert code_and_message(f"<Code>A</Code><Message>{'s' * 999}</Message>")[1] == "…"


def test_a_document_that_is_cut_loses_its_last_word() -> None:
    text = "word " * (LONGEST_ANSWER // 5) + "secretpart"
    assert "secretpart" not in code_and_message(text[:LONGEST_ANSWER])[1]
    assert code_and_message("x" * LONGEST_ANSWER) == ("", "")


@pytest.mark.parametrize(
    ("document", "header", "region"),
    [
        ("<Code>A</Code><Region>eu-west-1</Region>", "", "eu-west-1"),
        ("<Code>A</Code><Region>eu-west-1</Region>", "us-east-1", "us-east-1"),
        ("<Code>A</Code><Region>eu-west-1</Region>", "Not A Region", "eu-west-1"),
        ("<Code>A</Code><Message>expecting 'eu-west-2'</Message>", "", "eu-west-2"),
        ("<Code>A</Code><Region>EU</Region>", "", ""),
        ("", "", ""),
    ],
)
def test_the_region_is_of_the_headers_or_of_the_document(document: str, header: str, region: str) -> None:
    assert read_answer(301, document, region=header).region == region


@given(document=st.one_of(st.text(), st.binary(), st.text(alphabet='<>/CodeMsag[]!{}":& ')))
def test_no_document_breaks_the_line_or_is_quoted_at_length(document: str | bytes) -> None:
    answer = read_answer(500, document)
    for text in (answer.code, answer.message):
        assert text.isprintable()
        assert len(text) <= 302
