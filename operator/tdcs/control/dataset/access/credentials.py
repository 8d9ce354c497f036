"""Whether a Dataset's source may be read, and the keys with which it is."""

import base64
import binascii
from collections.abc import Mapping

from tdcs.api import names
from tdcs.api.dataset import KEYS_NEEDED, DatasetSpec
from tdcs.api.source_uri import is_folder
from tdcs.control.context import Context, Settings, Stores
from tdcs.kube.errors import ForbiddenError
from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_resources import SECRETS
from tdcs.model.problem import RETRY_SOON, Problem


def cluster_problem(*, stores: Stores, spec: DatasetSpec, new: bool = False) -> Problem | None:
    """Why the cache cluster cannot hold a source: it is not there, or goes.

    Args:
        new: whether the Dataset has not been mounted yet: a cache that is being deleted takes no new ones.
    """
    name = spec.cache_cluster_ref.name
    cluster = stores.cache_cluster(name)
    if cluster is None:
        return Problem(
            reason="CacheClusterNotFound",
            message=f"there is no CacheCluster {name} (spec.cacheClusterRef): create it, or create the "
            "Dataset anew with the name of one that exists (kubectl get cacheclusters -A)",
            retry_after=RETRY_SOON,
        )
    if new and cluster["metadata"].get("deletionTimestamp"):
        return Problem(
            reason="CacheClusterDeleting",
            message=f"CacheCluster {name} (spec.cacheClusterRef) is being deleted and takes no new Datasets: create "
            "the Dataset anew with the name of another one, or wait until one of that name is created again",
            retry_after=RETRY_SOON,
        )
    return None


async def read_credentials(
    *, context: Context, namespace: str, spec: DatasetSpec
) -> Credentials | Problem | None:
    """The keys of the store, from the Secret in the Dataset's own namespace; None for a file source.

    Without keys the cache would fall back on the credentials of its node, which are not the tenant's. A problem when
    none is named, there is no such Secret, a key is missing, or the operator may not read it.
    """
    if is_folder(spec.source.uri):
        return None
    if spec.source.secret_ref is None:
        return Problem(
            reason="SecretNotNamed",
            message=f"spec.source.secretRef is missing: {KEYS_NEEDED}",
        )
    name = spec.source.secret_ref.name
    where = f"Secret {namespace}/{name} (spec.source.secretRef)"
    try:
        secret = await context.api.get(SECRETS, name=name, namespace=namespace)
    except ForbiddenError:
        return Problem(
            reason="SecretForbidden",
            message=(
                f"{where} may not be read by the operator; allow it: "
                f"{secrets_remedy(settings=context.settings, namespace=namespace)}"
            ),
            retry_after=RETRY_SOON,
        )
    if secret is None:
        return Problem(
            reason="SecretNotFound",
            message=f"{where} does not exist: create it with the keys {names.SECRET_ACCESS_KEY_ID} and "
            f"{names.SECRET_SECRET_ACCESS_KEY}, or correct the reference",
            retry_after=RETRY_SOON,
        )
    data = secret.get("data") or {}
    found = {key: _value(data, key) for key in (names.SECRET_ACCESS_KEY_ID, names.SECRET_SECRET_ACCESS_KEY)}
    for key, value in found.items():
        if not value:
            return Problem(
                reason="SecretIncomplete",
                message=f"{where} has no usable value under the key {key}: add it",
                retry_after=RETRY_SOON,
            )
    return Credentials(
        access_key_id=found[names.SECRET_ACCESS_KEY_ID],
        secret_access_key=found[names.SECRET_SECRET_ACCESS_KEY],
    )


def secrets_remedy(*, settings: Settings, namespace: str) -> str:
    """The command with which the owner of a namespace lets the operator read its Secrets."""
    account = f"{settings.namespace}:{settings.service_account}"
    return (
        f"kubectl create rolebinding tdcs-dataset-secrets --clusterrole={settings.secrets_role} "
        f"--serviceaccount={account} -n {namespace}"
    )


def _value(data: Mapping[str, str], key: str) -> str:
    """The text under a key; empty when there is none that can be used."""
    try:
        return base64.b64decode(data.get(key, ""), validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return ""
