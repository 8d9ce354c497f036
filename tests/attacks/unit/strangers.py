"""Callers of a port that it does not know."""

import ssl

from tests.support.certificates import DAY, TestAuthority, now

from tdcs.trust.roles import Role


def unverified() -> ssl.SSLContext:
    """As a stranger would: it shows nothing, and accepts any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def strangers(authority: TestAuthority) -> dict[str, ssl.SSLContext]:
    """Callers whose certificates count for nothing."""
    believes = authority.pair.certificate
    return {
        "none": unverified(),
        "another authority's": TestAuthority().contexts(Role.OPERATOR, believes=believes).client(),
        "ended": authority.contexts(Role.OPERATOR, until=now() - DAY).client(),
    }
