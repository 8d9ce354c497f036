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
"""So long before its end a certificate is renewed."""
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
"""Makes an authority that ends then."""


def renewed_authority(
    known: Authority | None, *, now: datetime.datetime, spread: bool, make: Make | None = None
) -> Authority:
    """The authority as it shall be now; the same value when nothing changes.

    Args:
        known: as it was, with readable certificates.
        spread: whether all Secrets name all authorities of `known`.
    """
    create = make or (lambda until: make_authority(name="tdcs cache authority", until=until))
    if known is None:
        return Authority(signing=create(now + AUTHORITY_LIFETIME))
    if end_of(known.signing.certificate) <= now:  # the operator was away for years, or its clock is wrong
        following = known.following
        if following is None or end_of(following.certificate) <= now:
            following = create(now + AUTHORITY_LIFETIME)
        return Authority(
            signing=following, former=(known.signing.certificate, *_lasting(known, now=now)), replaced=now
        )
    kept = known
    if known.replaced is None or not datetime.timedelta(0) <= now - known.replaced < SPREAD:
        kept = replace(known, former=_lasting(known, now=now), replaced=None)
    if kept.following is None:
        if end_of(kept.signing.certificate) - now > AUTHORITY_RENEWAL:
            return known if kept == known else kept
        return replace(kept, following=create(now + AUTHORITY_LIFETIME), announced=None)
    if not spread:
        return replace(kept, announced=None)
    if kept.announced is None or kept.announced > now:  # a clock that was ahead: wait once more
        return replace(kept, announced=now)
    if now - kept.announced < SPREAD:
        return known if kept == known else kept
    return Authority(
        signing=kept.following, former=(kept.signing.certificate, *kept.former), replaced=kept.replaced
    )


def renewed_identity(
    known: Identity | None, *, subject: Subject, authority: Authority, now: datetime.datetime
) -> Identity:
    """The certificate, key and authorities of a process as they shall be now; the same value when nothing changes."""
    until = min(now + LIFETIME, end_of(authority.signing.certificate))
    if known is None or not _lasts(known, subject=subject, authority=authority, now=now, until=until):
        pair = make_certificate(subject=subject, authority=authority.signing, until=until)
        return Identity(certificate=pair.certificate, key=pair.key, authorities=authority.bundle)
    return known if known.authorities == authority.bundle else replace(known, authorities=authority.bundle)


def renewal_of(end: datetime.datetime) -> datetime.datetime:
    return end - RENEWAL


def clock_problem(now: datetime.datetime) -> str:
    """Why no certificate may be made by this clock; empty when it may."""
    if now < BEGINNING:
        return f"the operator's clock says {now:%Y-%m-%d}, before any certificate began: set its node's clock"
    return ""


def all_name(identities: Iterable[Identity], *, authority: Authority) -> bool:
    """Whether all these name exactly the authorities that are to be believed."""
    return all(identity.authorities == authority.bundle for identity in identities)


def _lasting(authority: Authority, *, now: datetime.datetime) -> tuple[bytes, ...]:
    return tuple(one for one in authority.former if now < end_of(one))


def _lasts(
    known: Identity,
    *,
    subject: Subject,
    authority: Authority,
    now: datetime.datetime,
    until: datetime.datetime,
) -> bool:
    if not matches_subject(known.certificate, subject):
        return False
    end = end_of(known.certificate)
    due = end - now <= RENEWAL and until - end >= _WORTH
    return (
        now < end
        and not due
        and is_signed_by(known.certificate, authority.signing.certificate)
        and belong_together(certificate=known.certificate, key=known.key)
    )
