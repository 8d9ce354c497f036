"""The keys with which a Dataset's source is read."""

import base64
import binascii
from collections.abc import Mapping

from tdcs.api import names
from tdcs.api.dataset import KEYS_NEEDED, DatasetSpec
from tdcs.api.source_uri import is_folder
from tdcs.control.context import Context, Settings
from tdcs.decide.problem import RETRY_SOON, Refusal
from tdcs.kube.errors import ForbiddenError
from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_resources import SECRETS


async def read_credentials(
    *, context: Context, namespace: str, spec: DatasetSpec
) -> Credentials | Refusal | None:
    """The keys of the store, from the Secret in the Dataset's own namespace; None for a file source.

    Without keys the cache would fall back on the credentials of its node, which are not the tenant's. A refusal when
    none is named, there is no such Secret, a key is missing, or the operator may not read it.
    """
    if is_folder(spec.source.uri):
        return None
    if spec.source.secret_ref is None:
        return Refusal(
            reason="SecretNotNamed",
            message=f"spec.source.secretRef is missing: {KEYS_NEEDED}",
        )
    name = spec.source.secret_ref.name
    where = f"Secret {namespace}/{name} (spec.source.secretRef)"
    try:
        secret = await context.api.get(SECRETS, name=name, namespace=namespace)
    except ForbiddenError:
        return Refusal(
            reason="SecretForbidden",
            message=(
                f"{where} may not be read by the operator; allow it: "
                f"{secrets_remedy(settings=context.settings, namespace=namespace)}"
            ),
            retry_after=RETRY_SOON,
        )
    if secret is None:
        return Refusal(
            reason="SecretNotFound",
            message=f"{where} does not exist: create it with the keys {names.SECRET_ACCESS_KEY_ID} and "
            f"{names.SECRET_SECRET_ACCESS_KEY}, or correct the reference",
            retry_after=RETRY_SOON,
        )
    data = secret.get("data") or {}
    found = {key: _value(data, key) for key in (names.SECRET_ACCESS_KEY_ID, names.SECRET_SECRET_ACCESS_KEY)}
    for key, value in found.items():
        if not value:
            return Refusal(
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
