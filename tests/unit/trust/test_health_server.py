"""The health of a process without an event loop, over HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from tdcs.trust.metrics_server import serve_health


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_is_told_at_its_path_alone_and_follows_the_process() -> None:
    well = True
    with serve_health(lambda: well, port=0, trouble="nothing is served") as port:
        assert asked(port, "/healthz") == (200, "ok\n")
        well = False
        assert asked(port, "/healthz") == (503, "nothing is served\n")
        assert asked(port, "/") == (404, "there is /healthz\n")


def test_a_port_that_another_process_has_is_named() -> None:
    with (
        serve_health(lambda: True, port=0, trouble="") as port,
        pytest.raises(OSError, match=f"no health can be served on port {port}"),
        serve_health(lambda: True, port=port, trouble=""),
    ):
        pass
