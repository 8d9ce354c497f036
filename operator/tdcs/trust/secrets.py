"""Authorities and identities as the data of Secrets, and back.

A Secret of a process has the keys `tls.crt`, `tls.key` and `ca.crt`, as cert-manager writes them.
"""

import base64
import binascii
import datetime
from collections.abc import Mapping
from typing import Any, Final

from tdcs.trust.certificates import KeyPair, belong_together, end_of
from tdcs.trust.identity import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, Identity
from tdcs.trust.renewal import Authority

_FOLLOWING: Final = ("following.crt", "following.key")
_FORMER: Final = "former.crt"
_ANNOUNCED: Final = "announced"
_REPLACED: Final = "replaced"
_END: Final = b"-----END CERTIFICATE-----\n"


def identity_data(identity: Identity) -> dict[str, str]:
    return {
        CERTIFICATE_FILE: _encoded(identity.certificate),
        KEY_FILE: _encoded(identity.key),
        AUTHORITIES_FILE: _encoded(identity.authorities),
    }


def identity_of(data: Mapping[str, Any] | None) -> Identity | None:
    """The identity in a process's Secret; None when a part is missing. The parts are not validated."""
    parts = [_decoded((data or {}).get(key)) for key in (CERTIFICATE_FILE, KEY_FILE, AUTHORITIES_FILE)]
    return Identity(*parts) if all(parts) else None


def authority_data(authority: Authority) -> dict[str, str]:
    data = {
        CERTIFICATE_FILE: _encoded(authority.signing.certificate),
        KEY_FILE: _encoded(authority.signing.key),
        AUTHORITIES_FILE: _encoded(authority.bundle),
    }
    if authority.following is not None:
        certificate, key = _FOLLOWING
        data |= {
            certificate: _encoded(authority.following.certificate),
            key: _encoded(authority.following.key),
        }
    for key, time in ((_ANNOUNCED, authority.announced), (_REPLACED, authority.replaced)):
        if time is not None:
            data[key] = _encoded(time.isoformat().encode())
    if authority.former:
        data[_FORMER] = _encoded(b"".join(authority.former))
    return data


def authority_of(data: Mapping[str, Any] | None) -> Authority | None:
    """The authority in a Secret; None when there is no usable one. Unreadable parts are left out."""
    values = {key: _decoded(value) for key, value in (data or {}).items()}
    signing = _pair(values.get(CERTIFICATE_FILE, b""), values.get(KEY_FILE, b""))
    if signing is None:
        return None
    following = _pair(*(values.get(key, b"") for key in _FOLLOWING))
    if following is not None and following.certificate == signing.certificate:
        following = None  # it has taken over
    return Authority(
        signing=signing,
        following=following,
        announced=_time(values.get(_ANNOUNCED, b"")) if following is not None else None,
        former=tuple(
            certificate for certificate in _split(values.get(_FORMER, b"")) if _is_readable(certificate)
        ),
        replaced=_time(values.get(_REPLACED, b"")),
    )


def _pair(certificate: bytes, key: bytes) -> KeyPair | None:
    fits = belong_together(certificate=certificate, key=key)
    return KeyPair(certificate=certificate, key=key) if fits else None


def _split(certificates: bytes) -> list[bytes]:
    return [part + _END for part in certificates.split(_END) if part.strip()]


def _is_readable(certificate: bytes) -> bool:
    try:
        end_of(certificate)
    except ValueError:
        return False
    return True


def _time(text: bytes) -> datetime.datetime | None:
    try:
        time = datetime.datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return b""
