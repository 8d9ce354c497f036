"""The roles that processes of a cache have, as their certificates name them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

ORGANIZATION: Final = "tdcs.io"
"""Organisation in the subject of every certificate; the common name is the role."""


class Role(StrEnum):
    OPERATOR = "operator"
    MASTER = "master"
    WORKER = "worker"
    AGENT = "agent"
    READER = "reader"
    """The node plugin and the remote-read client next to it."""
    FUSE = "fuse"
    """Alluxio's FUSE client."""
    MONITOR = "monitor"
    """What reads metrics, such as Prometheus; and the extender, which serves its own with this certificate."""

    @property
    def host(self) -> str:
        """A DNS name in every certificate of the role. Who connects by an address asks for this name instead."""
        return f"{self.value}.{ORGANIZATION}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end of a connection.

    Attributes:
        role: None: no certificate was shown, or one that names no role.
        until: when its certificate ends, in seconds since 1970. Connections may last longer than certificates.
    """

    role: Role | None
    until: float

    def role_at(self, now: float) -> Role | None:
        """The role, as long as the certificate is valid."""
        return self.role if now < self.until else None


def caller_of(certificate: Mapping[str, Any] | None, *, until: float) -> Caller:
    """The caller of a verified certificate, in the form of `ssl.SSLSocket.getpeercert`."""
    if not certificate:
        return Caller(None, 0.0)
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    named = [value for name, value in subject if name == "commonName"]
    ours = [value for name, value in subject if name == "organizationName"] == [ORGANIZATION]
    role_by_name = {role.value: role for role in Role}
    return Caller(role_by_name.get(named[0]) if ours and len(named) == 1 else None, until)
