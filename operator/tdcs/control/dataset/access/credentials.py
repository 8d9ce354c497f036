"""The keys with which a Dataset's source is read."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from tdcs.api import names
from tdcs.api.dataset import DatasetSpec
from tdcs.api.source_uri import is_folder, is_web
from tdcs.control.context import Context, Settings
from tdcs.decide.problem import RETRY_SOON, Refusal
from tdcs.kube.errors import ForbiddenError
from tdcs.model.cache_engine import NO_KEYS, Credentials
from tdcs.model.kube_resources import SECRETS

_TEMPORARY: Final = "ASIA"
"""What Amazon's ids of temporary keys begin with."""


async def read_credentials(
    *, context: Context, namespace: str, spec: DatasetSpec
) -> Credentials | Refusal | None:
    """The keys of the store, from the Secret in the Dataset's own namespace; `NO_KEYS` where none is named, None for a
    file source.

    A refusal when there is no such Secret, a key is missing, or the operator may not read it.
    """
    if is_folder(spec.source.uri):
        return None
    if spec.source.secret_ref is None:
        return NO_KEYS
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
        keys = (names.SECRET_ACCESS_KEY_ID, names.SECRET_SECRET_ACCESS_KEY)
        wanted = (
            f"the key {names.SECRET_TOKEN}" if is_web(spec.source.uri) else f"the keys {' and '.join(keys)}"
        )
        return Refusal(
            reason="SecretNotFound",
            message=f"{where} does not exist: create it with {wanted}, or correct the reference",
            retry_after=RETRY_SOON,
        )
    data = secret.get("data") or {}
    if is_web(spec.source.uri):
        return _of_web(data, where)
    found = {key: _value(data, key) for key in (names.SECRET_ACCESS_KEY_ID, names.SECRET_SECRET_ACCESS_KEY)}
    for key, value in found.items():
        if not value:
            return _incomplete(f"{where} has no usable value under the key {key}: add it")
    token, account = _value(data, names.SECRET_SESSION_TOKEN), found[names.SECRET_ACCESS_KEY_ID]
    if not token and names.SECRET_SESSION_TOKEN in data:
        return _incomplete(
            f"{where} has no usable value under the key {names.SECRET_SESSION_TOKEN}: put the token there, or remove "
            "the key"
        )
    if not token and account.startswith(_TEMPORARY):
        return _incomplete(
            f"{where} has temporary keys (an {names.SECRET_ACCESS_KEY_ID} that begins with {_TEMPORARY}) without the "
            f"session token that belongs to them, and no store takes them alone: add it under the key "
            f"{names.SECRET_SESSION_TOKEN}"
        )
    return Credentials(
        access_key_id=account,
        secret_access_key=found[names.SECRET_SECRET_ACCESS_KEY],
        session_token=token,
    )


def _of_web(data: Mapping[str, str], where: str) -> Credentials | Refusal:
    """A bearer token, or a user and a password."""
    token = _value(data, names.SECRET_TOKEN)
    user, password = _value(data, names.SECRET_USERNAME), _value(data, names.SECRET_PASSWORD)
    if token and not any(character.isspace() for character in token):
        return Credentials(access_key_id="", secret_access_key="", session_token=token)
    if user and password and ":" not in user:
        return Credentials(access_key_id=user, secret_access_key=password)
    return _incomplete(
        f"{where} has neither a usable {names.SECRET_TOKEN} nor a {names.SECRET_USERNAME} (without a colon) with a "
        f"{names.SECRET_PASSWORD}: add the one or the two"
    )


def _incomplete(message: str) -> Refusal:
    return Refusal(reason="SecretIncomplete", message=message, retry_after=RETRY_SOON)


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
