"""Makes and reads X.509 certificates: an authority, and one certificate a process with its role in the subject."""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tdcs.trust.roles import ORGANIZATION, Role

BEGINNING: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
"""Start of validity of every certificate. It is fixed, so that a clock that is wrong for a while cannot create
certificates that are not valid yet."""


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"  # never the key


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The process that a certificate identifies.

    Attributes:
        role: of the process.
        hosts: DNS names and addresses at which it is reached, next to its role's own name.
    """

    role: Role
    hosts: tuple[str, ...] = ()


def make_authority(*, name: str, until: datetime.datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject=subject, issuer=subject, key=key, until=until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_certificate(*, subject: Subject, authority: KeyPair, until: datetime.datetime) -> KeyPair:
    """A new certificate with a new key, signed by an authority. Raises ValueError when that cannot be read."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not one of an elliptic curve")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    certificate = (
        _builder(subject=_name(subject.role.value), issuer=issuer.subject, key=key, until=until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in _hosts(subject)]), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_own_certificate(*, name: str, host: str, until: datetime.datetime) -> KeyPair:
    """A self-signed server certificate, for clients that trust only this one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject=subject, issuer=subject, key=key, until=until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def end_of(certificate: bytes) -> datetime.datetime:
    """When a certificate ends. Raises ValueError when it cannot be read."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def matches_subject(certificate: bytes, subject: Subject) -> bool:
    """Whether a certificate names this role and exactly these hosts; False if it cannot be read."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    expected_names = {_general_name(host) for host in _hosts(subject)}
    return parsed.subject == _name(subject.role.value) and set(names) == expected_names


def missing_hosts(certificate: bytes, hosts: Iterable[str]) -> list[str]:
    """The hosts that a certificate does not cover; all of them when it cannot be read. As in TLS, a leading `*` in a
    name stands for one label, and names are case-insensitive."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        extension = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return list(hosts)
    certificate_names: set[object] = {name.lower() for name in extension.get_values_for_type(x509.DNSName)}
    certificate_names |= {*extension.get_values_for_type(x509.IPAddress)}

    def is_named(host: str) -> bool:
        name = _general_name(host).value
        if not isinstance(name, str):
            return name in certificate_names
        return name.lower() in certificate_names or f"*.{name.lower().partition('.')[2]}" in certificate_names

    return [host for host in hosts if not is_named(host)]


def has_role(certificate: bytes, role: Role) -> bool:
    """Whether a certificate is for this role; False if it cannot be read."""
    try:
        subject = x509.load_pem_x509_certificate(certificate).subject
    except ValueError:
        return False

    def values(kind: x509.ObjectIdentifier) -> list[str | bytes]:
        return [attribute.value for attribute in subject.get_attributes_for_oid(kind)]

    return values(NameOID.COMMON_NAME) == [role.value] and values(NameOID.ORGANIZATION_NAME) == [ORGANIZATION]


def is_signed_by(certificate: bytes, authorities: bytes) -> bool:
    """Whether one of the authorities (concatenated PEM) signed a certificate; False if one cannot be read."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        candidates = x509.load_pem_x509_certificates(authorities)
    except ValueError:
        return False
    for authority in candidates:
        try:
            parsed.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def belong_together(*, certificate: bytes, key: bytes) -> bool:
    """Whether a key belongs to a certificate; False if one cannot be read."""
    try:
        public = serialization.load_pem_private_key(key, None).public_key()
        certificate_key = x509.load_pem_x509_certificate(certificate).public_key()
    except (ValueError, TypeError):
        return False
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return public.public_bytes(*form) == certificate_key.public_bytes(*form)


def _hosts(subject: Subject) -> tuple[str, ...]:
    return tuple(dict.fromkeys((subject.role.host, *subject.hosts)))


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common[:64]),
        ]
    )


def _builder(
    *, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGINNING)
        .not_valid_after(until)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
