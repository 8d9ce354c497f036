"""Reading the keys of a source, and mounting it. Every cause of a failure becomes a condition."""

import base64
import binascii
from collections.abc import Mapping

from tdcs.api import names
from tdcs.api.dataset import KEYS_NEEDED, DatasetSpec
from tdcs.controllers.context import Context, Settings
from tdcs.engine.paths import canonical_uri, inside
from tdcs.engine.protocol import (
    Credentials,
    EngineError,
    EngineUnavailableError,
    MountConflictError,
    SourceError,
)
from tdcs.kube.errors import ForbiddenError
from tdcs.kube.resources import SECRETS

RETRY_SOON = 3.0
RETRY_LATER = 30.0


class NotYetError(Exception):
    """A pass cannot go on for a cause that is not the operator's; it becomes the object's conditions.

    Attributes:
        reason: PascalCase word of the condition.
        message: what is wrong and what to do.
        retry_after: seconds until another try is worth it.
        mounted: whether the source was mounted already.
        mounted_uri: the source's URI, when the pass has found it mounted.
    """

    def __init__(
        self,
        *,
        reason: str,
        message: str,
        retry_after: float = RETRY_LATER,
        mounted: bool = False,
        mounted_uri: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.mounted = mounted
        self.mounted_uri = mounted_uri


def require_cluster(*, context: Context, spec: DatasetSpec, new: bool = False) -> None:
    """Make sure that there is the cache cluster, and that it may read a file source.

    Args:
        context: the controller's world.
        spec: the Dataset's.
        new: whether the Dataset has not been mounted yet: a cache that is being deleted takes no new ones.

    Raises:
        NotYetError: it is not there, or goes, or the folder is outside of those that it may read.
    """
    name = spec.cache_cluster
    cluster = context.stores.cache_clusters.get(("", name))
    if cluster is None:
        raise NotYetError(
            reason="CacheClusterNotFound",
            message=f"there is no CacheCluster {name} (spec.cacheCluster): create it, or create the "
            "Dataset anew with the name of one that exists (kubectl get cacheclusters)",
            retry_after=RETRY_SOON,
        )
    if new and cluster["metadata"].get("deletionTimestamp"):
        raise NotYetError(
            reason="CacheClusterDeleting",
            message=f"CacheCluster {name} (spec.cacheCluster) is being deleted and takes no new Datasets: create the "
            "Dataset anew with the name of another one, or wait until one of that name is created again",
            retry_after=RETRY_SOON,
        )
    if not spec.source.uri.startswith("file://"):
        return
    folder = canonical_uri(spec.source.uri).removeprefix("file://")
    allowed = [str(each) for each in cluster.get("spec", {}).get("sourceFolders") or ()]
    if not any(inside(inner=folder, outer=each) for each in allowed):
        told = f"which are {', '.join(allowed)}" if allowed else "of which there is none"
        raise NotYetError(
            reason="FolderNotAllowed",
            message=f"{folder} (spec.source.uri) lies outside of spec.sourceFolders of CacheCluster {name}, {told}: "
            "ask its administrator to add the folder, which every cache node must see, or name another one",
            retry_after=RETRY_LATER,
        )


async def read_credentials(*, context: Context, namespace: str, spec: DatasetSpec) -> Credentials | None:
    """The keys of the store, from the Secret in the Dataset's own namespace; None for a file source.

    Without keys the cache would fall back on the credentials of its node, which are not the tenant's.

    Raises:
        NotYetError: none is named, there is no such Secret, a key is missing, or the operator may not read it.
    """
    if spec.source.uri.startswith("file://"):
        return None
    if spec.source.secret_ref is None:
        raise NotYetError(
            reason="SecretNotNamed",
            message=f"spec.source.secretRef is missing: {KEYS_NEEDED}",
        )
    name = spec.source.secret_ref.name
    where = f"Secret {namespace}/{name} (spec.source.secretRef)"
    try:
        secret = await context.api.get(SECRETS, name=name, namespace=namespace)
    except ForbiddenError as error:
        raise NotYetError(
            reason="SecretForbidden",
            message=(
                f"{where} may not be read by the operator; allow it: "
                f"{secrets_remedy(settings=context.settings, namespace=namespace)}"
            ),
            retry_after=RETRY_SOON,
        ) from error
    if secret is None:
        raise NotYetError(
            reason="SecretNotFound",
            message=f"{where} does not exist: create it with the keys {names.SECRET_ACCESS_KEY_ID} and "
            f"{names.SECRET_SECRET_ACCESS_KEY}, or correct the reference",
            retry_after=RETRY_SOON,
        )
    data = secret.get("data") or {}
    return Credentials(
        access_key_id=_value(data, names.SECRET_ACCESS_KEY_ID, where=where),
        secret_access_key=_value(data, names.SECRET_SECRET_ACCESS_KEY, where=where),
    )


def secrets_remedy(*, settings: Settings, namespace: str) -> str:
    """The command with which the owner of a namespace lets the operator read its Secrets."""
    account = f"{settings.namespace}:{settings.service_account}"
    return (
        f"kubectl create rolebinding tdcs-dataset-secrets --clusterrole={settings.secrets_role} "
        f"--serviceaccount={account} -n {namespace}"
    )


def _value(data: Mapping[str, str], key: str, *, where: str) -> str:
    try:
        value = base64.b64decode(data.get(key, ""), validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        value = ""
    if not value:
        raise NotYetError(
            reason="SecretIncomplete",
            message=f"{where} has no usable value under the key {key}: add it",
            retry_after=RETRY_SOON,
        )
    return value


def as_not_yet(error: EngineError, *, mounted: bool) -> NotYetError:
    """The condition for an engine's failure; the engine's text names the object and the remedy."""
    if isinstance(error, EngineUnavailableError):
        return NotYetError(reason="CacheUnavailable", message=str(error), retry_after=RETRY_SOON)
    if isinstance(error, SourceError):
        return NotYetError(reason="SourceRefused", message=str(error), retry_after=RETRY_LATER)
    if isinstance(error, MountConflictError):
        return NotYetError(reason="MountConflict", message=str(error), retry_after=RETRY_LATER)
    retry = RETRY_SOON if error.retryable else RETRY_LATER
    return NotYetError(reason="CacheError", message=str(error), retry_after=retry, mounted=mounted)
