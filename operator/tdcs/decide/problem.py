"""Why a pass cannot go on: a value that becomes the object's conditions."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import CACHE_UNAVAILABLE
from tdcs.model.cache_engine import (
    ClaimError,
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    MountConflictError,
    SourceError,
)

RETRY_SOON = 3.0
RETRY_LATER = 30.0
RETRY_SELDOM = 300.0

_MOUNT_PATH: Final = re.compile(rf"( at| for)?( ?){names.ENGINE_DATASETS_ROOT}/[0-9a-f]{{16}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A cause that is not the operator's.

    Attributes:
        reason: PascalCase word of the condition.
        message: what is wrong and what to do.
        retry_after: seconds until another try is worth it.
        mounted: whether the source was mounted already when it came.
        uri: the source's URI, when this pass has found it mounted.
        keys_refused: whether it is that the source refuses the keys.
        used: whether it is that pods use what was to go.
        nothing_cached: whether the cache can hold nothing of the source any more.
    """

    reason: str
    message: str
    retry_after: float = RETRY_LATER
    mounted: bool = False
    uri: str = ""
    keys_refused: bool = False
    used: bool = False
    nothing_cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Problem):
    """Why a Dataset may not read its source, see `tdcs.decide.may_read`.

    Attributes:
        permanent: what the Dataset was given is taken away. Else pods read on what is cached, and nothing of the source
            is mounted, listed or assigned to be read meanwhile.
    """

    permanent: bool = False


def refusal_of(problem: Problem, *, permanent: bool) -> Refusal:
    """The refusal for a problem that the source itself has."""
    return Refusal(**asdict(problem), permanent=permanent)


def of_disk(error: OSError) -> Problem:
    """The problem of a listing that this operator could not make."""
    text = (
        f"the source cannot be listed by the operator: {error.strerror or error} ({error.filename or 'no file'}). See "
        "the disk and the memory of the operator's pod; it is tried again"
    )
    return Problem(reason="CacheError", message=text, retry_after=RETRY_LATER, mounted=True)


def without_mount_paths(text: str) -> str:
    """A message without the cache's internal mount paths, which mean nothing to users."""
    return _MOUNT_PATH.sub(lambda match: "" if match[1] else f"{match[2]}the source", text)


def of_engine(error: EngineError, *, mounted: bool) -> Problem:
    """The problem of a failed engine call; the engine's text names the object and the remedy."""
    problem = _of_engine(error, mounted=mounted)
    return replace(problem, message=without_mount_paths(problem.message))


def _of_engine(error: EngineError, *, mounted: bool) -> Problem:
    if isinstance(error, EngineUnavailableError):
        return Problem(reason=CACHE_UNAVAILABLE, message=str(error), retry_after=RETRY_SOON)
    if isinstance(error, ClaimError):
        return Problem(reason=error.problem, message=error.reason, retry_after=RETRY_SOON)
    if isinstance(error, SourceError):
        refused = isinstance(error, KeysRefusedError)
        return Problem(
            reason="SourceRefused", message=str(error), retry_after=RETRY_LATER, keys_refused=refused
        )
    if isinstance(error, LimitExceededError):
        return Problem(reason="LimitExceeded", message=str(error), retry_after=RETRY_SELDOM, mounted=mounted)
    if isinstance(error, MountConflictError):
        return Problem(reason="MountConflict", message=str(error), retry_after=RETRY_LATER)
    retry = RETRY_SOON if error.retryable else RETRY_LATER
    return Problem(reason="CacheError", message=str(error), retry_after=retry, mounted=mounted)
