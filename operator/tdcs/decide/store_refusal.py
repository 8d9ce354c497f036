"""What a store's error answer means: whose fault it is, and what a person can do about it.

A store says why in a document: XML as S3 and Azure have it, JSON as Google and Azure have it, or plain text or HTML of
something that stands before it. Its code and its message are kept, and said to the user.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tdcs.api.source_uri import AZURE_SCHEMES, WEB_SCHEMES

LONGEST_ANSWER: Final = 65_536
"""Bytes of an error's document that are looked at."""

_LONGEST_CODE: Final = 64
_LONGEST_MESSAGE: Final = 300

_LONGEST_TEXT: Final = 8192
"""Characters of a document that are searched, white space put together: the searches below may take a time that grows
with the square of a hostile text's length, and the process that searches has more to do."""

# All repetitions have a bound, for the same reason.
_CODE: Final = re.compile(
    r"<(?:\w{1,16}:)?Code(?:\s[^>]{0,99})?>([^<]{0,999}|\s?<!\[CDATA\[.{0,999}?\]\]>\s?)</(?:\w{1,16}:)?Code>",
    re.DOTALL,
)
_MESSAGE: Final = re.compile(
    r"<(?:\w{1,16}:)?Message(?:\s[^>]{0,99})?>([^<]{0,4000}|\s?<!\[CDATA\[.{0,4000}?\]\]>\s?)</(?:\w{1,16}:)?Message>",
    re.DOTALL,
)
_DETAIL: Final = re.compile(r"<AuthenticationErrorDetail>([^<]{0,2000})</AuthenticationErrorDetail>")
_NO_DETAIL: Final = re.compile(
    r"(?:The )?MAC signature|string to sign|[;,-]?\s*Current \[[^\]]{0,99}\]", re.IGNORECASE
)
"""What is not said of Azure's details: of a wrong signature the text that it is of, which is another one each time, and
the time of the answer."""
_REGION: Final = re.compile(r"<(?:\w{1,16}:)?Region(?:\s[^>]{0,99})?>\s?([a-z0-9-]{1,32})\s?</")
_EXPECTED_REGION: Final = re.compile(r"expecting '([a-z0-9-]{1,32})'")
_PLAIN_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_INVISIBLE: Final = re.compile(r"<(script|style|head)\b.*?</\1>", re.DOTALL | re.IGNORECASE)
_TAG: Final = re.compile(r"<[^>]*>")
_CDATA: Final = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_CHANGING: Final = re.compile(
    r"[;,]?\s*\b(?:Request|x-ms-request-|Host|Trace)[ -]?Id\s*[:=]\s*\S+|\bTime\s*:\s*\d{4}-\d\d-\d\dT\S+",
    re.IGNORECASE,
)
"""What is another one in each answer: equal failures would look different."""


class Cause(StrEnum):
    """Why a store does not give what it was asked for."""

    KEYS = "keys"
    TOKEN = "token"  # noqa: S105 - no secret
    CLOCK = "clock"
    ARCHIVED = "archived"
    KMS = "kms"
    CUSTOMER_KEY = "customer key"
    PAYER = "payer"
    DISABLED = "disabled"
    DENIED = "denied"
    NO_BUCKET = "no bucket"
    MISSING = "missing"
    CHANGED = "changed"
    SHORTER = "shorter"
    NAME = "name"
    REGION = "region"
    REDIRECTED = "redirected"
    BUSY = "busy"
    REFUSED = "refused"
    SILENT = "silent"


class StoreKind(StrEnum):
    """Who answers: what people are told to check is called otherwise."""

    S3 = "S3"
    WEB = "web"
    GOOGLE = "Google"
    AZURE = "Azure"


def store_kind(scheme: str) -> StoreKind:
    """The kind of store that sources of a scheme lie in."""
    if scheme in WEB_SCHEMES:
        return StoreKind.WEB
    if scheme in AZURE_SCHEMES:
        return StoreKind.AZURE
    return StoreKind.GOOGLE if scheme == "gs" else StoreKind.S3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    """An answer that is not what was asked for.

    Attributes:
        status: of HTTP; 0 where there was none.
        code: in the store's own words (`AccessDenied`); empty where it has none.
        message: its sentence for people, on one line; empty where it has none.
        region: the bucket's, where the store names one.
    """

    status: int
    code: str = ""
    message: str = ""
    region: str = ""

    @property
    def said(self) -> str:
        """What the store said, such as `(403): AccessDenied (Access Denied)`."""
        # No colon behind the code: what follows one behind such as InvalidAccessKeyId is taken for a secret.
        words = f"{self.code} ({self.message})" if self.code and self.message else self.code or self.message
        return f"({self.status})" + (f": {words}" if words else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What an answer means.

    Attributes:
        reason: a clause for people, without what the store said.
        remedy: what to do, a clause in the imperative; empty where nothing is to be done.
    """

    cause: Cause
    reason: str
    remedy: str = ""

    @property
    def of_keys(self) -> bool:
        """Whether the store has refused the credentials, or what they may read: these count no more."""
        return self.cause in _OF_KEYS


def read_answer(status: int, document: str | bytes, *, region: str = "") -> StoreAnswer:
    """An answer by its status, the text of its document, and the region that its headers name."""
    begin = document[:LONGEST_ANSWER]
    whole = begin.decode("utf-8", "replace") if isinstance(begin, bytes) else begin
    text = _closed_up(whole)
    is_cut = len(document) >= LONGEST_ANSWER or len(text) > _LONGEST_TEXT
    text = text[:_LONGEST_TEXT]
    answer = _of_xml(status, text) or _of_json(status, text) or _of_text(status, text, is_cut=is_cut)
    plain = region if _PLAIN_REGION.fullmatch(region) else answer.region
    if not plain and (expected := _EXPECTED_REGION.search(answer.message)) is not None:
        plain = expected[1]
    return replace(answer, region=plain)


def _of_xml(status: int, text: str) -> StoreAnswer | None:
    code = _CODE.search(text)
    if code is None:
        return None
    message, region, detail = _MESSAGE.search(text), _REGION.search(text), _DETAIL.search(text)
    said = _unescaped(message[1]) if message is not None else ""
    if detail is not None:
        said = f"{_CHANGING.sub('', said)} {_NO_DETAIL.split(_unescaped(detail[1]))[0]}"
    return StoreAnswer(
        status=status,
        code=_short_code(_unescaped(code[1])),
        message=_sentence(said),
        region=region[1] if region is not None else "",
    )


def _of_json(status: int, text: str) -> StoreAnswer | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    inner = found.get("error", found)
    if isinstance(inner, str):
        return StoreAnswer(
            status=status,
            code=_short_code(inner),
            message=_sentence(_text(found.get("error_description") or found.get("message"))),
        )
    if not isinstance(inner, dict):
        return None
    details = inner.get("errors")
    first = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
    code = first.get("reason") or inner.get("code") or inner.get("Code") or inner.get("status")
    return StoreAnswer(
        status=status,
        code="" if str(code) == str(status) else _short_code(_text(code)),
        message=_sentence(_text(inner.get("message") or inner.get("Message"))),
    )


def _of_text(status: int, text: str, *, is_cut: bool) -> StoreAnswer:
    title = _TITLE.search(text)
    if title is not None:
        plain = title[1]
    else:
        plain = _TAG.sub(" ", _INVISIBLE.sub(" ", _without_last_word(text) if is_cut else text))
    return StoreAnswer(status=status, message=_sentence(html.unescape(plain)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _closed_up(text: str) -> str:
    """The text with one blank for all white space between two words."""
    return " ".join(text.split())


def _unescaped(text: str) -> str:
    plain = _CDATA.sub(lambda found: found[1], text)
    return html.unescape(plain) if plain == text else plain


def _line(text: str) -> str:
    return _closed_up("".join(each if each.isprintable() else " " for each in text))


def _short_code(text: str) -> str:
    """A code on one line; none where it is too long for one: secrets are found as a whole alone."""
    code = _line(text)
    return code if len(code) <= _LONGEST_CODE else ""


def _sentence(text: str) -> str:
    line = _line(_CHANGING.sub("", _closed_up(text))).rstrip(".")
    if len(line) <= _LONGEST_MESSAGE:
        return line
    return f"{_without_last_word(line[:_LONGEST_MESSAGE])} …".lstrip()


def _without_last_word(text: str) -> str:
    """A text that was cut, up to its last blank: the part of a secret that is left would not be known as one."""
    return text.rpartition(" ")[0]


_CAUSES: Final[dict[str, Cause]] = {
    **dict.fromkeys(
        (
            *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "UserNotFound"),
            *("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"),
            *("authError", "InvalidClientTokenId", "UnrecognizedClientException", "MissingSecurityHeader"),
        ),
        Cause.KEYS,
    ),
    **dict.fromkeys(
        ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredTokenException"), Cause.TOKEN
    ),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"), Cause.CLOCK),
    **dict.fromkeys(
        ("InvalidObjectState", "BlobArchived", "BlobBeingRehydrated", "ObjectNotInActiveTier"), Cause.ARCHIVED
    ),
    **dict.fromkeys(
        (
            *("ResourceIsEncryptedWithCustomerEncryptionKey", "BlobUsesCustomerSpecifiedEncryption"),
            *("ServerSideEncryptionCustomerKeyRequired", "InvalidEncryptionAlgorithmError"),
        ),
        Cause.CUSTOMER_KEY,
    ),
    **dict.fromkeys(("UserProjectMissing", "InvalidPayer", "RequesterPaysRequired"), Cause.PAYER),
    **dict.fromkeys(
        (
            "AllAccessDisabled",
            "AccountProblem",
            "AccountIsDisabled",
            "NotSignedUp",
            "AccountProblemException",
            "accountDisabled",
            "ContainerDisabled",
        ),
        Cause.DISABLED,
    ),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"), Cause.NO_BUCKET),
    **dict.fromkeys(
        (
            *("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"),
            *("IllegalLocationConstraintException", "IncorrectEndpoint"),
        ),
        Cause.REGION,
    ),
    **dict.fromkeys(
        (
            *("AuthorizationFailure", "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch"),
            *(
                "AuthorizationServiceMismatch",
                "AuthorizationSourceIPMismatch",
                "AuthorizationProtocolMismatch",
            ),
            *(
                "InsufficientAccountPermissions",
                "KeyBasedAuthenticationNotPermitted",
                "PublicAccessNotPermitted",
            ),
        ),
        Cause.DENIED,
    ),
    **dict.fromkeys(("KeyVaultEncryptionKeyNotFound", "KeyVaultAccessTokenCannotBeAcquired"), Cause.KMS),
    **dict.fromkeys(("InvalidRange",), Cause.SHORTER),
    **dict.fromkeys(("PreconditionFailed", "ConditionNotMet", "conditionNotMet"), Cause.CHANGED),
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion", "BlobNotFound"), Cause.MISSING),
    **dict.fromkeys(
        ("KeyTooLong", "KeyTooLongError", "InvalidURI", "InvalidResourceName", "XMinioInvalidObjectName"),
        Cause.NAME,
    ),
    **dict.fromkeys(
        (
            *(
                "SlowDown",
                "SlowDownRead",
                "TooManyRequests",
                "TooManyRequestsException",
                "RequestLimitExceeded",
            ),
            *("RequestTimeout", "RequestTimeoutException", "ServerBusy", "Busy", "OperationTimedOut"),
            *("ServiceUnavailable", "BandwidthLimitExceeded", "rateLimitExceeded", "userRateLimitExceeded"),
        ),
        Cause.BUSY,
    ),
}
"""By what a store calls it, whatever the status: Amazon's `RequestTimeout` is a 400."""

_GOOGLES_BUCKET: Final = re.compile(r"The specified bucket does not exist", re.IGNORECASE)
"""The whole message: that of an object begins with "No such object"."""
_THROTTLED: Final = re.compile(r"throttl", re.IGNORECASE)
_KMS: Final = re.compile(r"\bkms:|\bKMS\b")
_CUSTOMER_KEY: Final = re.compile(
    r"server[- ]side encryption.*(correct parameters|customer|key)|customer[- ](supplied|provided).*key",
    re.IGNORECASE,
)
_PAYER: Final = re.compile(r"requester[- ]?pays|request-payer", re.IGNORECASE)
_SKEWED: Final = re.compile(
    r"request (date|time).*(too old|too large|skew)|clock skew|reasonable timeframe", re.IGNORECASE
)

_CERTAIN: Final = frozenset(
    {Cause.KEYS, Cause.TOKEN, Cause.NO_BUCKET, Cause.CHANGED, Cause.SHORTER, Cause.MISSING}
)
"""What a known code alone decides: the object's name may stand in the message, with any words."""

BUSY_STATUSES: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Answers of a store, or of what stands before it, that ask for patience or tell of a time-out."""
_REDIRECTIONS: Final = frozenset({301, 302, 303, 307, 308})
_OF_KEYS: Final = frozenset({Cause.KEYS, Cause.TOKEN, Cause.DENIED})

_SECRET: Final = "the Secret of spec.source.secretRef"  # noqa: S105 - no secret
_MEANINGS: Final[dict[Cause, tuple[str, str]]] = {
    Cause.KEYS: ("the source refuses the credentials", f"check accessKeyId and secretAccessKey in {_SECRET}"),
    Cause.TOKEN: (
        "the source refuses the session token, which has expired or is not of this key",
        f"put a new accessKeyId, secretAccessKey and sessionToken into {_SECRET}",
    ),
    Cause.CLOCK: (
        "the clock of this node and the source's differ by too much",
        "have the node's clock set, as NTP does",
    ),
    Cause.ARCHIVED: (
        "the object is archived, and cannot be read before it is restored",
        "restore it from its storage class (GLACIER, DEEP_ARCHIVE, Archive), or leave it out",
    ),
    Cause.KMS: (
        "the credentials may not use the key management service's key that the object is encrypted with",
        "allow them kms:Decrypt for that key, and see that the key is enabled",
    ),
    Cause.CUSTOMER_KEY: (
        "the object is encrypted with a key that its writer has kept (SSE-C), which TDCS cannot give",
        "store it without a customer's key",
    ),
    Cause.PAYER: (
        "who asks for the objects of this bucket pays for that",
        "set spec.source.options.requesterPays to true",
    ),
    Cause.DISABLED: ("the store has closed the account or the bucket", "see the store's account"),
    Cause.DENIED: (
        "the source refuses the credentials or the file",
        f"check what the account of {_SECRET} may read (s3:GetObject and s3:ListBucket)",
    ),
    Cause.NO_BUCKET: (
        "there is no such bucket",
        "check the bucket's name in spec.source.uri and the endpoint",
    ),
    Cause.MISSING: ("the file is not at the source any more", ""),
    Cause.CHANGED: ("the file is another one at the source", ""),
    Cause.SHORTER: ("the file became shorter at the source", ""),
    Cause.NAME: ("the source refuses the file's name", "rename it at the source, or leave it out"),
    Cause.REGION: (
        "the bucket is in another region, or its store has another address",
        "set spec.source.options.region to the bucket's region",
    ),
    Cause.REDIRECTED: (
        "the store sends its readers to another host, and nothing of the cache goes there",
        "name the address at which the store itself answers in spec.source.options.endpoint",
    ),
    Cause.BUSY: ("the source is busy, or a part of it is away", ""),
    Cause.REFUSED: ("the source refuses the request", ""),
    Cause.SILENT: ("the source does not answer as a store does", ""),
}


_KEYS_WANTED: Final[dict[StoreKind, tuple[str, str]]] = {
    StoreKind.S3: (
        "the source gives nothing to who has no keys",
        "name a Secret with accessKeyId and secretAccessKey in spec.source.secretRef",
    ),
    StoreKind.WEB: (
        "the source gives nothing to who shows no credentials",
        "name a Secret with token, or with username and password, in spec.source.secretRef",
    ),
    StoreKind.GOOGLE: (
        "the source gives nothing to who has no keys",
        "name a Secret with key.json, the key file of a service account, in spec.source.secretRef",
    ),
    StoreKind.AZURE: (
        "there is no such container, or it gives nothing to who has no keys",
        "check spec.source.uri, or name a Secret with accountKey or sasToken in spec.source.secretRef",
    ),
}
_WEB_REFUSED: Final = (
    "the source refuses the credentials or the file",
    f"check token, or username and password, in {_SECRET}, and what their account may read",
)
_AZURE_RIGHTS: Final = (
    f"check that what {_SECRET} holds may read and list the container (r and l of a shared access signature, or the "
    "role Storage Blob Data Reader), and the account's network rules"
)
_OWN_MEANINGS: Final[dict[StoreKind, dict[Cause, tuple[str, str]]]] = {
    StoreKind.S3: {},
    StoreKind.WEB: {
        **dict.fromkeys(_OF_KEYS, _WEB_REFUSED),
        Cause.NO_BUCKET: ("there is no such folder", "check spec.source.uri"),
        Cause.REGION: ("the source has moved", "name its new address in spec.source.uri"),
        Cause.REDIRECTED: (
            "the source sends its readers elsewhere, and does not say where to",
            "name the address at which it answers itself in spec.source.uri",
        ),
    },
    StoreKind.GOOGLE: {
        **dict.fromkeys(
            (Cause.KEYS, Cause.TOKEN),
            (
                "the source refuses the credentials",
                f"check key.json, or token, in {_SECRET}, and that the account still has this key",
            ),
        ),
        Cause.DENIED: (
            "the source refuses the credentials or the file",
            f"check that the account of {_SECRET} has the role Storage Object Viewer for the bucket",
        ),
        Cause.KMS: (
            "the object is encrypted with a key of Cloud KMS that its store cannot use",
            "see that the key is enabled, and that the store's service agent may use it",
        ),
        Cause.PAYER: (
            "who asks for the objects of this bucket pays for that, which gs sources do not",
            "read it as s3:// by an HMAC key at https://storage.googleapis.com, or have its owner pay",
        ),
    },
    StoreKind.AZURE: {
        **dict.fromkeys(
            (Cause.KEYS, Cause.TOKEN),
            (
                "the source refuses the credentials",
                f"check that accountKey, sasToken or token in {_SECRET} is of this account, and has not expired",
            ),
        ),
        Cause.DENIED: (
            "the source refuses the credentials or the blob",
            _AZURE_RIGHTS,
        ),
        Cause.ARCHIVED: (
            "the blob is in the tier Archive, and cannot be read before it is rehydrated",
            "set its tier to Hot, Cool or Cold, or leave it out by spec.source.exclude",
        ),
        Cause.KMS: (
            "the account's encryption key in Key Vault cannot be used",
            "see that the key is enabled, and that the account may use it",
        ),
        Cause.CUSTOMER_KEY: (
            "the blob is encrypted with a key that its writer has kept, which TDCS cannot give",
            "store it without a customer-provided key",
        ),
        Cause.NO_BUCKET: ("there is no such container", "check account and container in spec.source.uri"),
    },
}
"""What is said otherwise of other stores than S3."""


def judge(answer: StoreAnswer, *, keyless: bool = False, kind: StoreKind = StoreKind.S3) -> Meaning:
    """What an answer means.

    Args:
        keyless: it was asked for without keys, as a public bucket is.
        kind: of store, whose answer it is.
    """
    cause = _cause(answer)
    if keyless and answer.code == "ResourceNotFound":  # a private container is none to who has no keys
        cause = Cause.DENIED
    if keyless and cause in _OF_KEYS:
        keys_wanted = _KEYS_WANTED[kind]
        return Meaning(cause=cause, reason=keys_wanted[0], remedy=keys_wanted[1])
    reason, remedy = _OWN_MEANINGS[kind].get(cause, _MEANINGS[cause])
    if cause is Cause.REGION and answer.region:
        reason = f"the bucket is in the region {answer.region}"
    return Meaning(cause=cause, reason=reason, remedy=remedy)


def _cause(answer: StoreAnswer) -> Cause:
    status, code, message = answer.status, answer.code, answer.message
    if _THROTTLED.search(code) or status == 429:
        return Cause.BUSY
    # Azure's code for this is the one of wrong keys, too.
    if status in (400, 401, 403) and _SKEWED.search(message):
        return Cause.CLOCK
    known = _CAUSES.get(code)
    if known is Cause.MISSING and status != 404:
        known = None
    if known in _CERTAIN:
        return known
    if status == 404 and _GOOGLES_BUCKET.fullmatch(message):
        return Cause.NO_BUCKET
    if status >= 400 and (code.startswith("KMS.") or (status in (400, 403) and _KMS.search(message))):
        return Cause.KMS
    if status in (400, 403) and _CUSTOMER_KEY.search(message):
        return Cause.CUSTOMER_KEY
    if status in (400, 402, 403) and _PAYER.search(message):
        return Cause.PAYER
    return known or _cause_by_status(answer)


def _cause_by_status(answer: StoreAnswer) -> Cause:
    status = answer.status
    if status in _REDIRECTIONS:
        return Cause.REGION if answer.region else Cause.REDIRECTED
    if status in (401, 403):
        return Cause.DENIED
    if status in BUSY_STATUSES:
        return Cause.BUSY
    by_status = {
        404: Cause.MISSING,
        410: Cause.MISSING,
        412: Cause.CHANGED,
        414: Cause.NAME,
        416: Cause.SHORTER,
    }
    return by_status.get(status, Cause.REFUSED if 400 <= status < 500 else Cause.SILENT)
