"""Problems of certificates that the user or cert-manager provides."""

import datetime

from tdcs.trust.certificates import Subject, belong_together, end_of, has_role, is_signed_by, missing_hosts
from tdcs.trust.identity import Identity
from tdcs.trust.roles import Role


def given_problem(identity: Identity | None, *, role: Role, now: datetime.datetime) -> str:
    """The problem of a user's Secret and the remedy, to follow the Secret's name; empty without a problem."""
    keys = "tls.crt, tls.key and ca.crt"
    if identity is None:
        return f"is not there, or lacks one of {keys}: make it, with a certificate of the role {role}"
    end = end_or_none(identity.certificate)
    if end is None or not belong_together(certificate=identity.certificate, key=identity.key):
        return (
            f"has a certificate and a key that cannot be read or do not belong together: give it {keys} again"
        )
    if not has_role(identity.certificate, role):
        return f"has a certificate with another subject: it must be O=tdcs.io, CN={role}"
    if end <= now:
        return f"has a certificate that ended {end:%Y-%m-%d}: renew it"
    if not is_signed_by(identity.certificate, identity.authorities):
        return "has a certificate that no authority in its ca.crt has signed: put the authority's there"
    return ""


def hosts_problem(identity: Identity, *, subject: Subject, cluster: str, by_cert_manager: bool) -> str:
    """The host that a user's Secret lacks and the remedy, to follow the Secret's name; empty when it lacks none.

    Args:
        identity: what the Secret has.
        subject: its role, and where the cache cluster's processes of that role are reached.
        cluster: the cache cluster.
        by_cert_manager: whether the chart asks cert-manager for it.
    """
    missing = missing_hosts(identity.certificate, _asked_for(subject))
    if not missing:
        return ""
    first = missing[0]
    more = f" (nor {len(missing) - 1} more)" if len(missing) > 1 else ""
    text = f"has a certificate that does not name {first}{more}"
    if first not in subject.hosts:
        return f"{text}, the name of its role: add it to the DNS names"
    text += f", where others reach the role {subject.role} of CacheCluster {cluster}, and refuse it"
    if by_cert_manager:
        return f"{text}: add {cluster} to the chart value trust.certManager.cacheClusters"
    _, _, domain = first.partition(".")
    return f"{text}: add it to the DNS names and addresses" + ("" if _is_local(first) else f", or *.{domain}")


def _asked_for(subject: Subject) -> tuple[str, ...]:
    """The names that callers ask of a certificate. In its own pod a worker is reached at an address, by the agent."""
    role = (subject.role.host,) if subject.role in {Role.OPERATOR, Role.AGENT} else ()
    local = ("127.0.0.1",) if subject.role is Role.WORKER and "127.0.0.1" in subject.hosts else ()
    return (*role, *(host for host in subject.hosts if not _is_local(host)), *local)


def _is_local(host: str) -> bool:
    return host in {"localhost", "127.0.0.1"}


def end_or_none(certificate: bytes) -> datetime.datetime | None:
    """When a certificate ends; None when it cannot be read."""
    try:
        return end_of(certificate)
    except ValueError:
        return None
