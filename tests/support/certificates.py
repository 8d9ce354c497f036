"""Authorities and certificates for tests, in memory or in folders as a mounted Secret has them."""

from __future__ import annotations

import base64
import datetime
import functools
from pathlib import Path

from tdcs.trust.certificates import KeyPair, Subject, make_authority, make_certificate
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, Identity
from tdcs.trust.roles import Role

DAY = datetime.timedelta(days=1)
LOCAL = ("127.0.0.1", "localhost")


def now() -> datetime.datetime:
    """The time now."""
    return datetime.datetime.now(datetime.UTC)


@functools.cache
def authority_data() -> str:
    """An authority, as kubeconfigs have it: a client that has none reads all that this machine knows, which takes 25 ms
    of a processor each time."""
    authority = make_authority(name="authority of a test", until=now() + 1000 * DAY)
    return base64.b64encode(authority.certificate).decode()


class TestAuthority:
    """An authority that signs for any role."""

    __test__ = False

    def __init__(self, name: str = "authority of a test") -> None:
        self.pair: KeyPair = make_authority(name=name, until=now() + 1000 * DAY)

    def identity(
        self,
        role: Role,
        *,
        hosts: tuple[str, ...] = LOCAL,
        until: datetime.datetime | None = None,
        believes: bytes = b"",
    ) -> Identity:
        """A new certificate of a role, which believes this authority, or others."""
        subject = Subject(role=role, hosts=hosts)
        certificate = make_certificate(subject=subject, authority=self.pair, until=until or now() + DAY)
        return Identity(certificate.certificate, certificate.key, believes or self.pair.certificate)

    def contexts(self, role: Role, **given: object) -> Contexts:
        """TLS contexts of a process with such a certificate."""
        identity = self.identity(role, **given)  # type: ignore[arg-type]
        return Contexts(lambda: identity)

    def folder(self, folder: Path, role: Role, **given: object) -> Path:
        """A folder with such a certificate."""
        return write_identity(folder, self.identity(role, **given))  # type: ignore[arg-type]


def write_identity(folder: Path, identity: Identity) -> Path:
    """Put an identity into a folder, file by file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        (CERTIFICATE_FILE, identity.certificate),
        (KEY_FILE, identity.key),
        (AUTHORITIES_FILE, identity.authorities),
    ):
        new = folder / f".{name}"
        new.write_bytes(content)
        new.rename(folder / name)
    return folder
