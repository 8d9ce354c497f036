"""Commands that fetch from elsewhere are tried again when it was a matter of moments, and only then."""

from pathlib import Path

import pytest

from tdcs_local import shell
from tdcs_local.errors import LocalError

# What go, mvn, apt-get and mmdebstrap say.
MOMENTS = [
    "go: example.org/m@v1.0.0: reading https://proxy/m.zip: 502 Bad Gateway",
    'Get "https://proxy/m.zip": read tcp 10.0.0.1:1->10.0.0.2:443: read: connection reset by peer',
    'Get "https://proxy/m.zip": net/http: TLS handshake timeout',
    'Get "https://proxy/m.zip": EOF',
    "verifying m@v1.0.0: unexpected EOF",
    "[ERROR] Could not transfer artifact a:b:jar:1 from/to central: Read timed out",
    "E: Failed to fetch http://mirror/x.deb  Temporary failure resolving 'mirror'",
    "etcdserver: request timed out",
    "the server was unable to return a response in the time allowed (ServiceUnavailable)",
    "context deadline exceeded",
    "Could not transfer: status code: 503, reason phrase",
]
DEFECTS = [
    "./main.go:7:2: undefined: frobnicate",
    "fatal error: open x: permission denied",
    "spec.datasets[0].readiness.timeout: Invalid value: expected a duration",
    "pkg/timeout.go:12:3: undefined: foo",
    "line 503: syntax error",
    "spec.unreachable: Forbidden",
]


def failing(folder: Path, text: str, *, times: int) -> list[str]:
    """A command that says this and fails, so many times."""
    count = folder / "count"
    script = f'echo x >>{count}; [ "$(wc -l <{count})" -gt {times} ] || {{ echo "$1"; exit 1; }}'
    return ["sh", "-c", script, "sh", text]


def tries(folder: Path) -> int:
    return len((folder / "count").read_text().splitlines())


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "FETCH_PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("text", MOMENTS)
def test_what_failed_for_a_moment_is_fetched_again(tmp_path: Path, text: str) -> None:
    shell.run(failing(tmp_path, text, times=2), what="x failed", log=tmp_path / "log", fetches=True)
    assert tries(tmp_path) == 3
    assert "it is tried again" in (tmp_path / "log").read_text()


def test_what_goes_on_failing_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="502"):
        shell.run(failing(tmp_path, MOMENTS[0], times=9), what="x", log=tmp_path / "log", fetches=True)
    assert tries(tmp_path) == 4


@pytest.mark.parametrize("text", DEFECTS)
def test_a_defect_is_told_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(LocalError, match="x failed"):
        shell.run(failing(tmp_path, text, times=1), what="x failed", log=tmp_path / "log", fetches=True)
    assert tries(tmp_path) == 1


def test_what_fetches_nothing_is_run_once(tmp_path: Path) -> None:
    with pytest.raises(LocalError):
        shell.run(failing(tmp_path, MOMENTS[0], times=1), what="x failed", log=tmp_path / "log")
    assert tries(tmp_path) == 1
