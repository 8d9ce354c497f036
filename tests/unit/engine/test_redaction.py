"""Secrets do not leave the process in any text."""

import base64

import pytest

from tdcs.model.cache_engine import Credentials, EngineError, Source
from tdcs.model.redaction import redact

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfi"

ECHO = f"""option MountContext{{ProtoOptions=readOnly: true
properties {{
  key: "s3a.secretKey"
  value: "{SECRET}"
}}
"""


@pytest.mark.parametrize(
    "text",
    [
        f"signature with {SECRET} is wrong",
        ECHO,
        f"GET /?key={SECRET.replace('/', '%2F').replace('+', '%2B')}",
        "basic " + base64.b64encode(SECRET.encode()).decode(),
    ],
    ids=["plain", "as Alluxio repeats a mount", "in a URL", "in base64"],
)
@pytest.mark.threat("names-in-messages")
def test_a_named_secret_is_hidden_in_all_its_forms(text: str) -> None:
    shown = redact(text=text, secrets=[SECRET])
    assert SECRET not in shown
    assert "[hidden]" in shown


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s3a.secretKey=abc, other=1", "s3a.secretKey=[hidden], other=1"),
        ("aws.accessKeyId: AKIA", "aws.accessKeyId: [hidden]"),
        ('{"password": "x y"}', '{"password": [hidden] y"}'),
        ('key: "s3a.secretKey"\n  value: "abc"\n}', 'key: "s3a.secretKey"\n  value: [hidden]\n}'),
        ("no route to host", "no route to host"),
        (
            "the Secret default/s3 has no key secretAccessKey",
            "the Secret default/s3 has no key secretAccessKey",
        ),
    ],
)
@pytest.mark.threat("names-in-messages")
def test_values_of_what_is_called_a_secret_are_hidden_unasked(text: str, wanted: str) -> None:
    assert redact(text=text) == wanted


@pytest.mark.threat("names-in-messages")
def test_what_is_too_short_for_a_secret_hides_nothing() -> None:
    assert redact(text="all is well", secrets=["", "is"]) == "all is well"


@pytest.mark.threat("names-in-messages")
def test_credentials_are_in_no_repr() -> None:
    pair = Credentials(access_key_id="AKIAEXAMPLE", secret_access_key=SECRET)
    source = Source(uri="s3://bucket", credentials=pair)
    for text in (repr(pair), str(pair), repr(source), f"{source}"):
        assert SECRET not in text
        assert "AKIAEXAMPLE" not in text


@pytest.mark.threat("names-in-messages")
def test_an_engine_error_says_what_why_and_what_next_without_secrets() -> None:
    error = EngineError(
        attempted=f"mount s3://b with {SECRET}",
        reason=f"the server said {SECRET}",
        remedy="Check the Secret",
        path="/datasets/x",
        secrets=[SECRET],
    )
    assert str(error) == "could not mount s3://b with [hidden]: the server said [hidden]. Check the Secret"
    assert SECRET not in repr(error)
    assert error.path == "/datasets/x"
