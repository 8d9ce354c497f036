"""The API server of a busy machine is asked again where asking twice does no harm."""

from pathlib import Path
from typing import Any

import pytest

from tdcs_local.containers import node_image
from tdcs_local.errors import LocalError
from tdcs_local.kind import kubectl
from tdcs_local.kind.kubectl import Kubectl

BUSY = "Unable to connect to the server: net/http: TLS handshake timeout"
MISSING = 'Error from server (NotFound): pods "x" not found'


class Api:
    """Says what went wrong as often as told, then answers."""

    def __init__(self, *says: str) -> None:
        self.says = list(says)
        self.asked = 0

    def __call__(self, command: object, **_: Any) -> str:
        self.asked += 1
        if self.says:
            raise LocalError(what="kubectl failed", why=self.says.pop(0))
        return "{}"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    monkeypatch.setattr(node_image, "kubectl", lambda: Path("/nowhere/kubectl"))
    monkeypatch.setattr(kubectl, "RETRY_PAUSES", (0.0, 0.0, 0.0))
    return Kubectl()


@pytest.mark.parametrize("words", [("get", "pods"), ("apply", "-f", "-"), ("delete", "pod", "x")])
def test_what_can_be_done_twice_is_asked_again(
    program: Kubectl, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    api = Api(BUSY, BUSY)
    monkeypatch.setattr(kubectl, "capture", api)
    assert program(*words) == "{}"
    assert api.asked == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("exec", "x", "--", "true"), BUSY),
        (("get", "--raw", "/readyz"), BUSY),
        (("get", "pod", "x"), MISSING),
    ],
)
def test_what_cannot_or_would_not_help_is_told_at_once(
    program: Kubectl, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    api = Api(said, said)
    monkeypatch.setattr(kubectl, "capture", api)
    with pytest.raises(LocalError):
        program(*words)
    assert api.asked == 1


def test_a_server_that_stays_away_is_told_in_its_words(
    program: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(*[BUSY] * 9)
    monkeypatch.setattr(kubectl, "capture", api)
    with pytest.raises(LocalError) as failed:
        program("get", "pods")
    assert (failed.value.why, api.asked) == (BUSY, 4)
