"""What a store's error answer means: whose fault it is, and what a person can do about it.

Its code and its message (:mod:`tdcs.decide.error_document`) are kept, and said to the user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tdcs.api.source_uri import AZURE_SCHEMES, WEB_SCHEMES
from tdcs.decide.error_document import StoreAnswer


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
    """The kind of store that sources of a scheme are in."""
    if scheme in WEB_SCHEMES:
        return StoreKind.WEB
    if scheme in AZURE_SCHEMES:
        return StoreKind.AZURE
    return StoreKind.GOOGLE if scheme == "gs" else StoreKind.S3


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


_CAUSES: Final[dict[str, Cause]] = {
    **dict.fromkeys(
        (
            *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "UserNotFound"),
            *(
                "XAdminUserNotFound",
                "XMinioAdminNoSuchUser",
                "XMinioAdminNoSuchAccessKey",
                "InvalidAccessKey",
            ),
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
_CHOSEN_NAMES: Final = re.compile(r"\barn:(?!\S*:kms:)\S+|\"[^\"]*\"|'[^']*'")
"""Of roles, buckets and objects: they mean nothing, whatever words they hold."""
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
_ROLE: Final = "the role of spec.source.serviceAccountName"
_MEANINGS: Final[dict[Cause, tuple[str, str]]] = {
    Cause.KEYS: ("the source refuses the credentials", f"check accessKeyId and secretAccessKey in {_SECRET}"),
    Cause.TOKEN: (
        "the source refuses the session token, which has expired or is not of this key",
        (
            f"put a new accessKeyId, secretAccessKey and sessionToken into {_SECRET}; those of "
            "spec.source.serviceAccountName are renewed by themselves"
        ),
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
        f"check what the account of {_SECRET}, or {_ROLE}, may read (s3:GetObject and s3:ListBucket)",
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
        (
            "name a Secret with accessKeyId and secretAccessKey in spec.source.secretRef, or a ServiceAccount in "
            "spec.source.serviceAccountName"
        ),
    ),
    StoreKind.WEB: (
        "the source gives nothing to who shows no credentials",
        "name a Secret with token, or with username and password, in spec.source.secretRef",
    ),
    StoreKind.GOOGLE: (
        "the source gives nothing to who has no keys",
        (
            "name a Secret with key.json, the key file of a service account, in spec.source.secretRef, or a "
            "ServiceAccount in spec.source.serviceAccountName"
        ),
    ),
    StoreKind.AZURE: (
        "there is no such container, or it gives nothing to who has no keys",
        (
            "check spec.source.uri, or name a Secret with accountKey or sasToken in spec.source.secretRef, or a "
            "ServiceAccount in spec.source.serviceAccountName"
        ),
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
    status, code = answer.status, answer.code
    message = _CHOSEN_NAMES.sub("", answer.message)
    if _THROTTLED.search(code) or status == 429:
        return Cause.BUSY
    # Azure's code for this is the one of wrong keys, too.
    if status in (400, 401, 403) and _SKEWED.search(message):
        return Cause.CLOCK
    cause = _CAUSES.get(code)
    if cause is Cause.MISSING and status != 404:
        cause = None
    if cause in _CERTAIN:
        return cause
    if status == 404 and _GOOGLES_BUCKET.fullmatch(message):
        return Cause.NO_BUCKET
    if status >= 400 and (code.startswith("KMS.") or (status in (400, 403) and _KMS.search(message))):
        return Cause.KMS
    if status in (400, 403) and _CUSTOMER_KEY.search(message):
        return Cause.CUSTOMER_KEY
    if status in (400, 402, 403) and _PAYER.search(message):
        return Cause.PAYER
    return cause or _cause_by_status(answer)


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
