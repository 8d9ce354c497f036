"""When an authority and certificates are renewed, so that at every moment all processes believe each other.

A new authority signs nothing before all processes know it: it is announced in every Secret first, and takes over when
these have had the time to arrive (`SPREAD`). The one before it is believed until it ends. One that has ended by the
operator's clock is replaced at once, and believed until the Secrets have arrived: the clock may be wrong, and other
processes then still have valid certificates of it.
"""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from tdcs.trust.certificates import (
    BEGINNING,
    KeyPair,
    Subject,
    belong_together,
    end_of,
    is_signed_by,
    make_authority,
    make_certificate,
    matches_subject,
)
from tdcs.trust.identity import Identity

LIFETIME: Final = datetime.timedelta(days=90)
RENEWAL: Final = datetime.timedelta(days=30)
"""A certificate is renewed this long before its end."""
AUTHORITY_LIFETIME: Final = datetime.timedelta(days=3 * 365)
AUTHORITY_RENEWAL: Final = datetime.timedelta(days=365)
SPREAD: Final = datetime.timedelta(hours=1)
"""A Secret reaches every process within this time: kubelet looks every minute or two, processes every few seconds."""

_WORTH: Final = datetime.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """The release's own authority.

    Attributes:
        following: what takes over next; None most of the time.
        announced: since when all Secrets name `following`; None: they do not yet.
        former: certificates of authorities before that, which may still have signed a certificate in use.
        replaced: when one that had ended was replaced, without an announcement; None: that is long ago.
    """

    signing: KeyPair
    following: KeyPair | None = None
    announced: datetime.datetime | None = None
    former: tuple[bytes, ...] = ()
    replaced: datetime.datetime | None = None

    @property
    def bundle(self) -> bytes:
        following = (self.following.certificate,) if self.following is not None else ()
        return b"".join((self.signing.certificate, *following, *self.former))


Make = Callable[[datetime.datetime], KeyPair]
"""Creates an authority that ends at the given time."""


def renewed_authority(
    present: Authority | None, *, now: datetime.datetime, spread: bool, make: Make | None = None
) -> Authority:
    """The authority to use now; the same value when nothing changes.

    Args:
        present: the authority so far, with readable certificates.
        spread: whether all Secrets name all authorities of `present`.
    """
    create = make or (lambda until: make_authority(name="tdcs cache authority", until=until))
    if present is None:
        return Authority(signing=create(now + AUTHORITY_LIFETIME))
    if end_of(present.signing.certificate) <= now:  # the operator was away for years, or its clock is wrong
        following = present.following
        if following is None or end_of(following.certificate) <= now:
            following = create(now + AUTHORITY_LIFETIME)
        return Authority(
            signing=following, former=(present.signing.certificate, *_lasting(present, now=now)), replaced=now
        )
    authority = present
    if present.replaced is None or not datetime.timedelta(0) <= now - present.replaced < SPREAD:
        authority = replace(present, former=_lasting(present, now=now), replaced=None)
    if authority.following is None:
        if end_of(authority.signing.certificate) - now > AUTHORITY_RENEWAL:
            return present if authority == present else authority
        return replace(authority, following=create(now + AUTHORITY_LIFETIME), announced=None)
    if not spread:
        return replace(authority, announced=None)
    if authority.announced is None or authority.announced > now:  # a clock that was ahead: wait once more
        return replace(authority, announced=now)
    if now - authority.announced < SPREAD:
        return present if authority == present else authority
    return Authority(
        signing=authority.following,
        former=(authority.signing.certificate, *authority.former),
        replaced=authority.replaced,
    )


def renewed_identity(
    present: Identity | None, *, subject: Subject, authority: Authority, now: datetime.datetime
) -> Identity:
    """The certificate, key and authorities that a process should have now; the same value when nothing changes."""
    until = min(now + LIFETIME, end_of(authority.signing.certificate))
    if present is None or not _lasts(present, subject=subject, authority=authority, now=now, until=until):
        pair = make_certificate(subject=subject, authority=authority.signing, until=until)
        return Identity(certificate=pair.certificate, key=pair.key, authorities=authority.bundle)
    return (
        present if present.authorities == authority.bundle else replace(present, authorities=authority.bundle)
    )


def renewal_of(end: datetime.datetime) -> datetime.datetime:
    return end - RENEWAL


def clock_problem(now: datetime.datetime) -> str:
    """Why no certificate may be created at this clock's time; empty when one may."""
    if now < BEGINNING:
        return f"the operator's clock says {now:%Y-%m-%d}, before any certificate began: set its node's clock"
    return ""


def all_name(identities: Iterable[Identity], *, authority: Authority) -> bool:
    """Whether all these name exactly the authorities to be trusted."""
    return all(identity.authorities == authority.bundle for identity in identities)


def _lasting(authority: Authority, *, now: datetime.datetime) -> tuple[bytes, ...]:
    return tuple(former for former in authority.former if now < end_of(former))


def _lasts(
    present: Identity,
    *,
    subject: Subject,
    authority: Authority,
    now: datetime.datetime,
    until: datetime.datetime,
) -> bool:
    if not matches_subject(present.certificate, subject):
        return False
    end = end_of(present.certificate)
    due = end - now <= RENEWAL and until - end >= _WORTH
    return (
        now < end
        and not due
        and is_signed_by(present.certificate, authority.signing.certificate)
        and belong_together(certificate=present.certificate, key=present.key)
    )
