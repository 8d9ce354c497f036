"""Who may read metrics of operator, extender, node plugin and remote-read client: who shows the certificate for it.

Metrics name Datasets, jobs, namespaces and nodes of all tenants.
"""

import contextlib
import datetime
import http.client
import socket
import ssl
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.support.certificates import TestAuthority, now

from tdcs.trust import metrics_server
from tdcs.trust.identity import NoIdentityError
from tdcs.trust.metrics_server import serve_metrics
from tdcs.trust.rights import METRICS_CALLERS
from tdcs.trust.roles import Role


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


def registry() -> CollectorRegistry:
    """One with a secret of a tenant."""
    registry = CollectorRegistry()
    Gauge("tdcs_dataset_files", "Files.", ["dataset"], registry=registry).labels("takeover-plans").set(7)
    return registry


@pytest.fixture
def port(authority: TestAuthority) -> Iterator[int]:
    """Where an operator serves its metrics."""
    with serve_metrics(registry(), port=0, tls=authority.contexts(Role.OPERATOR).server) as port:
        yield port


def ask(port: int, context: ssl.SSLContext | None, *, host: str = Role.OPERATOR.host) -> tuple[int, str]:
    """Status and text of an answer; raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        connection = context.wrap_socket(plain, server_hostname=host) if context is not None else plain
        with contextlib.closing(connection):
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read().decode()


def test_prometheus_is_answered(port: int, authority: TestAuthority) -> None:
    status, text = ask(port, authority.contexts(Role.MONITOR).client())
    assert status == 200
    assert 'tdcs_dataset_files{dataset="takeover-plans"} 7.0' in text


@pytest.mark.parametrize("role", sorted(set(Role) - METRICS_CALLERS))
@pytest.mark.threat("metrics-ports")
def test_other_roles_are_told_who_may_ask(port: int, authority: TestAuthority, role: Role) -> None:
    status, text = ask(port, authority.contexts(role).client())
    assert status == 403
    assert "roles monitor and operator" in text
    assert "takeover" not in text


def without_certificate() -> ssl.SSLContext:
    """As a curious pod has it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("case", ["plain", "no certificate", "another authority", "ended"])
@pytest.mark.threat("metrics-ports")
def test_a_caller_without_a_certificate_hears_nothing(port: int, authority: TestAuthority, case: str) -> None:
    if case == "plain":
        context = None
    elif case == "no certificate":
        context = without_certificate()
    elif case == "another authority":
        believes = authority.pair.certificate
        context = TestAuthority("a stranger").contexts(Role.MONITOR, believes=believes).client()
    else:
        ended = now() - datetime.timedelta(minutes=1)
        context = authority.contexts(Role.MONITOR, until=ended).client()
    with pytest.raises((OSError, http.client.HTTPException)):
        ask(port, context)
    assert ask(port, authority.contexts(Role.MONITOR).client())[0] == 200  # the next one is served


def test_callers_that_say_nothing_or_drip_keep_nobody_else_waiting_for_long(authority: TestAuthority) -> None:
    tls = authority.contexts(Role.OPERATOR).server
    with (
        serve_metrics(registry(), port=0, tls=tls, handshake_seconds=1.0) as port,
        contextlib.ExitStack() as open_ones,
    ):
        silent = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            for _ in range(2 * metrics_server.MOST_CALLERS)
        ]
        end = time.monotonic() + 20
        status = 0
        while status != 200 and time.monotonic() < end:
            with contextlib.suppress(OSError):  # a piece of a handshake now and then does not prolong it
                silent[0].send(b"\x16")
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, _ = ask(port, authority.contexts(Role.MONITOR).client())
        assert status == 200


def test_without_a_certificate_of_its_own_a_process_answers_nobody_and_lives_on(
    authority: TestAuthority,
) -> None:
    tls = authority.contexts(Role.OPERATOR).server
    missing = True

    def context() -> ssl.SSLContext:
        if missing:
            raise NoIdentityError("it is not there yet")
        return tls()

    with serve_metrics(registry(), port=0, tls=context) as port:
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(port, authority.contexts(Role.MONITOR).client())
        missing = False
        assert ask(port, authority.contexts(Role.MONITOR).client())[0] == 200


def test_a_port_that_is_taken_is_named(port: int) -> None:
    with (
        pytest.raises(OSError, match=rf"no metrics can be served on port {port}"),
        serve_metrics(registry(), port=port),
    ):
        pass
