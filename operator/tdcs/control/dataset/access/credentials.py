"""The keys with which a Dataset's source is read."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tdcs.api import names
from tdcs.api.dataset import DatasetSpec
from tdcs.api.source_uri import is_claim, is_folder, parse_source_uri
from tdcs.control.context import Context, Settings
from tdcs.decide.problem import RETRY_SOON, Refusal
from tdcs.engine.azure_requests import account_key, is_shared_access
from tdcs.engine.google_requests import private_key
from tdcs.kube.errors import ForbiddenError
from tdcs.model.cache_engine import NO_KEYS, Credentials
from tdcs.model.kube_resources import SECRETS

_GOOGLES_TYPES: Final = ("authorized_user", "external_account", "impersonated_service_account")
_PLAIN: Final = re.compile(r"[!-~]+")
_TEMPORARY: Final = "ASIA"
"""What Amazon's ids of temporary keys begin with."""


async def read_credentials(
    *, context: Context, namespace: str, spec: DatasetSpec
) -> Credentials | Refusal | None:
    """The keys of the store, from the Secret in the Dataset's own namespace; `NO_KEYS` where none is named, None for a
    folder and a claim.

    A refusal when there is no such Secret, a key is missing, or the operator may not read it.
    """
    if is_folder(spec.source.uri) or is_claim(spec.source.uri):
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
    scheme = parse_source_uri(spec.source.uri).scheme
    if secret is None:
        needed_keys = f"the keys {names.SECRET_ACCESS_KEY_ID} and {names.SECRET_SECRET_ACCESS_KEY}"
        if scheme != "s3":
            keys = {"gs": names.SECRET_KEY_FILE, "az": names.SECRET_ACCOUNT_KEY}
            needed_keys = f"the key {keys.get(scheme, names.SECRET_TOKEN)}"
        return Refusal(
            reason="SecretNotFound",
            message=f"{where} does not exist: create it with {needed_keys}, or correct the reference",
            retry_after=RETRY_SOON,
        )
    data = secret.get("data") or {}
    if scheme == "gs":
        return _of_google(data, where)
    if scheme == "az":
        return _of_azure(data, where)
    if scheme != "s3":
        return _of_web(data, where)
    account_keys = {
        key: _value(data, key) for key in (names.SECRET_ACCESS_KEY_ID, names.SECRET_SECRET_ACCESS_KEY)
    }
    for key, value in account_keys.items():
        if not value:
            return _incomplete(f"{where} has no usable value under the key {key}: add it")
    token, account = _value(data, names.SECRET_SESSION_TOKEN), account_keys[names.SECRET_ACCESS_KEY_ID]
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
        secret_access_key=account_keys[names.SECRET_SECRET_ACCESS_KEY],
        session_token=token,
    )


class _KeyFile(msgspec.Struct, frozen=True):
    """A key file as Google's tools write it."""

    type: str = ""
    client_email: str = ""
    private_key: str = ""
    private_key_id: str = ""


def _of_google(data: Mapping[str, str], where: str) -> Credentials | Refusal:
    """A service account's key file, or an access token."""
    text, token = _value(data, names.SECRET_KEY_FILE), _value(data, names.SECRET_TOKEN)
    if not text and token and not any(character.isspace() for character in token):
        return Credentials(access_key_id="", secret_access_key="", session_token=token)
    if not text:
        return _incomplete(
            f"{where} has neither a usable {names.SECRET_KEY_FILE}, the key file of a service account, nor a "
            f"{names.SECRET_TOKEN}: add the one or the other"
        )
    file = f"the key {names.SECRET_KEY_FILE} of {where}"
    again = "create a key of the account (gcloud iam service-accounts keys create), and put its file there"
    try:
        key_file = msgspec.json.decode(text, type=_KeyFile)
    except msgspec.MsgspecError:  # which may quote what it has found
        return _incomplete(f"{file} is no JSON as Google writes it: {again}")
    if key_file.type != "service_account":
        kind = (
            f"of the type {key_file.type}" if key_file.type in _GOOGLES_TYPES else "of no type that is known"
        )
        return _incomplete(f"{file} is {kind}, and a service account's is needed: {again}")
    if not key_file.client_email:
        return _incomplete(f"{file} has no client_email: {again}")
    try:
        private_key(key_file.private_key)
    except ValueError as error:
        return _incomplete(f"{file} has a private_key that cannot be used ({error}): {again}")
    return Credentials(
        access_key_id=key_file.client_email,
        secret_access_key=key_file.private_key,
        session_token=key_file.private_key_id,
    )


def _of_azure(data: Mapping[str, str], where: str) -> Credentials | Refusal:
    """An account's key, a shared access signature, or a bearer token."""
    keys = [
        key for key in (names.SECRET_ACCOUNT_KEY, names.SECRET_SAS_TOKEN, names.SECRET_TOKEN) if key in data
    ]
    if len(keys) != 1:
        several = f"has {' and '.join(keys)}, of which one counts" if keys else "has none of them"
        return _incomplete(
            f"{where} {several}: leave in it either {names.SECRET_ACCOUNT_KEY}, a key of the storage account, or "
            f"{names.SECRET_SAS_TOKEN}, a shared access signature, or {names.SECRET_TOKEN}, an access token"
        )
    value = _value(data, keys[0])
    if keys[0] == names.SECRET_ACCOUNT_KEY:
        try:
            account_key(value)
        except ValueError as error:
            return _incomplete(
                f"{where} has an {names.SECRET_ACCOUNT_KEY} that cannot be used ({error}): copy it again (az storage "
                "account keys list)"
            )
        return Credentials(access_key_id="", secret_access_key=value)
    shared = keys[0] == names.SECRET_SAS_TOKEN
    token = value.removeprefix("?")
    if not token or not _PLAIN.fullmatch(token) or is_shared_access(token) is not shared:
        form = "the query of the URL, from sv= on, with its sig=" if shared else "without 'Bearer' before it"
        return _incomplete(f"{where} has no usable {keys[0]}: write it as Azure gives it, {form}")
    return Credentials(access_key_id="", secret_access_key="", session_token=token)


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
