"""What the API server may answer instead of an object, as exceptions that name the object and the attempt."""

from tdcs.model.kube_resources import Resource


class KubeError(Exception):
    """A request to the API server failed.

    Attributes:
        resource: the kind that was asked for.
        name: the object's; None for all.
        code: HTTP status, 0 when no answer came at all.
        reason: the server's machine-readable reason, such as ``Forbidden``; may be empty.
        detail: the server's sentence.
    """

    def __init__(
        self,
        *,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str | None,
        code: int,
        reason: str,
        detail: str,
    ) -> None:
        target = "/".join(part for part in (namespace, name) if part) or "(all)"
        super().__init__(f"cannot {verb} {resource.kind} {target}: {detail} (HTTP {code} {reason})".rstrip())
        self.resource = resource
        self.name = name
        self.code = code
        self.reason = reason
        self.detail = detail


class NotFoundError(KubeError):
    """404: no such object, or the resource type itself is not installed."""


class ConflictError(KubeError):
    """409: it exists already, or it changed since it was read, or another manager owns the field."""


class ForbiddenError(KubeError):
    """403: the service account lacks the right, or admission refused."""


class InvalidError(KubeError):
    """400, 422, or an applied object that does not fit its type: sending it again does not help."""


class GoneError(KubeError):
    """410: the resource version is too old; list again."""


class UnavailableError(KubeError):
    """No answer, a timeout, 429 or 5xx: worth another try later."""


MISFITS = (
    "failed to create typed patch object",
    "failed to create typed live object",
    "failed to convert new object",
    "quantities must match",
)
"""What is in the server's complaint about an applied object with a field of the wrong type, with two entries of
one name in a list, or with a quantity that is none; or about a live one that is older than its definition and does not
fit it. It answers 500, as if it had failed itself."""


def error_class(*, code: int, detail: str = "") -> type[KubeError]:
    """The exception for an HTTP status (0: no answer) and the server's sentence."""
    if code == 500 and any(misfit in detail for misfit in MISFITS):
        return InvalidError
    error_classes: dict[int, type[KubeError]] = {
        400: InvalidError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        410: GoneError,
        422: InvalidError,
        429: UnavailableError,
    }
    if code in error_classes:
        return error_classes[code]
    return UnavailableError if code == 0 or code >= 500 else KubeError
