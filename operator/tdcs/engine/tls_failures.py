"""Whom is trusted of stores' certificates, and what is wrong with one, in words."""

from __future__ import annotations

import re
import ssl
from typing import Final

_WORDS: Final = (
    (
        r"UnknownIssuer|self.signed|unable to get (local )?issuer|unknown ca|CertificateUnknown|CaUsedAsEndEntity",
        "its certificate was issued by an authority that is not trusted here (or by itself)",
    ),
    (
        r"NotValidForName|Hostname mismatch|IP address mismatch|not valid for|match any of the subject alternative",
        "its certificate is for other hosts than the one that was asked",
    ),
    (r"NotValidYet|not yet valid", "its certificate is not valid yet: compare the clocks"),
    (r"Expired|has expired", "its certificate has expired"),
    (r"Revoked|revoked", "its certificate was revoked"),
    (r"InvalidPurpose|unsuitable certificate purpose", "its certificate is not one of a server"),
    (r"BadSignature|signature failure", "the signature of its certificate is wrong"),
    (r"BadEncoding|bad encoding", "its certificate cannot be read"),
)
_LONGEST: Final = 120


def trusting(ca_bundle: str) -> ssl.SSLContext:
    """A context that trusts these authorities in PEM in addition to the public ones. Raises ssl.SSLError."""
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=ca_bundle)
    return context


def pinned(certificate: str) -> ssl.SSLContext:
    """A context that takes this certificate in PEM and no other one, whatever the host is called. Raises
    ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


def explain_certificate(text: str) -> str:
    """What is wrong with a certificate.

    Args:
        text: as OpenSSL, rustls or Java say it.
    """
    for pattern, words in _WORDS:
        if re.search(pattern, text):
            return words
    return f"its certificate is refused ({' '.join(text.split())[:_LONGEST]})"
