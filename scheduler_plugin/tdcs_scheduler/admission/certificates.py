"""The certificates by which the API server knows the webhook. They live in this process alone.

A start makes new ones, so there is no Secret to keep, to copy or to rotate: what the API server is to trust is written
into the webhook's configuration, see `trust`.
"""

import datetime
import ipaddress
import os
import ssl
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = datetime.timedelta(days=90)
RENEWAL: Final = datetime.timedelta(days=60)
"""After so long new ones are made: a month before the old ones end."""

# The clocks of two machines differ.
_EARLIER: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """An authority of one certificate, and that one with its key; all PEM."""

    authority: bytes
    certificate: bytes
    key: bytes


def make_certificates(*, hosts: tuple[str, ...], now: datetime.datetime) -> Certificates:
    """New certificates for a server of these names or addresses, of which the first names it."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tdcs admission webhook")])
    authority = (
        _builder(subject=issuer, issuer=issuer, key=authority_key, now=now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    # A common name has at most 64 characters; nothing looks at it.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _builder(subject=subject, issuer=issuer, key=key, now=now)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Certificates(
        authority=authority.public_bytes(serialization.Encoding.PEM),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def load_into(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Have a server's context use these certificates; connections that are open keep theirs.

    OpenSSL takes them from a file only: this one is in memory, and has no name.
    """
    descriptor = os.memfd_create("tdcs-webhook")
    try:
        os.write(descriptor, certificates.certificate + certificates.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _builder(
    *, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + LIFETIME)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
