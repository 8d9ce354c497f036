"""Where the API server is and who asks, found by the package `kubernetes`: a kubeconfig or a pod's service account.

The package reads contexts, certificates, tokens, `exec` plugins and OIDC. This module chooses the place in kubectl's
order, turns whatever a malformed file raises into one error with a remedy, and reads credentials again when the
server refuses them.
"""

import asyncio
import os
import re
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import KubeConfigLoader
from yarl import URL

DEFAULT_KUBECONFIG = Path(os.path.expanduser("~/.kube/config"))  # without a home it merely does not exist
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_TOKEN = "BearerToken"  # noqa: S105 - the key under which the package keeps the header
_MALFORMED = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError)
"""What the package raises for a kubeconfig that is no kubeconfig; it checks little before it reads."""


class ConfigurationError(Exception):
    """No usable configuration of the API server was found. The message names the file and the remedy."""


class ApiAccess:
    """The API server's address, its certificates, and the caller's credentials.

    Attributes:
        configuration: the address, certificates and proxy, in the package's form; replaced by `renew`.
        namespace: of the kubeconfig's context or of the pod; None when neither names one.
        impersonation: headers of each request, by which the server takes it for another user's; see `_impersonation`.
    """

    def __init__(
        self,
        *,
        configuration: Configuration,
        namespace: str | None = None,
        impersonation: Sequence[tuple[str, str]] = (),
        read: Callable[[], Awaitable[Configuration]] | None = None,
    ) -> None:
        self.configuration = configuration
        self.namespace = namespace
        self.impersonation = impersonation
        self._read = read
        self._renewing = asyncio.Lock()

    async def authorization(self) -> str | None:
        """The value of the Authorization header; None for a caller without a token. A pod's token is read again
        every minute, because kubelet rotates it.

        Raises:
            ConfigurationError: the token cannot be read.
        """
        try:
            token = await self.configuration.get_api_key_with_prefix(_TOKEN, alias="authorization")
        except (ConfigException, OSError) as error:
            raise ConfigurationError(f"the service account's token cannot be read: {error}") from error
        return token.strip() if token else None

    async def renew(self, *, refused: Configuration) -> None:
        """Read the credentials again, unless that was done since `refused` was in use.

        Raises:
            ConfigurationError: they cannot be read.
        """
        async with self._renewing:
            if self._read is not None and self.configuration is refused:
                self.configuration = await self._read()


async def load_access(*, kubeconfig: Path | None = None, context: str | None = None) -> ApiAccess:
    """The access that kubectl would have: `kubeconfig`, else $KUBECONFIG, ~/.kube/config, a pod's service account.

    Args:
        kubeconfig: a file; other places are not looked at.
        context: one of the kubeconfig's contexts; default: the current one.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    files = _kubeconfig_files(kubeconfig)
    if files is None:
        return await _of_service_account()
    configuration, loader = await _of_file(files, context=context)
    namespace = loader.current_context["context"].get("namespace")
    user = getattr(getattr(loader, "_user", None), "value", None)
    impersonation = _impersonation(user or {}, files=files)

    async def read() -> Configuration:
        return (await _of_file(files, context=context))[0]

    return ApiAccess(configuration=configuration, namespace=namespace, impersonation=impersonation, read=read)


def _impersonation(user: Mapping[str, Any], *, files: str) -> tuple[tuple[str, str], ...]:
    """The headers for a kubeconfig's user with `as`, `as-uid`, `as-groups` and `as-user-extra`: what kubectl --as does.
    The package takes no notice of these fields. Source: "User impersonation" in the documentation of Kubernetes.

    Raises:
        ConfigurationError: they are not what they must be.
    """
    try:
        extra = [
            (f"Impersonate-Extra-{quote(key.lower(), safe='')}", str(value))
            for key, values in (user.get("as-user-extra") or {}).items()
            for value in values
        ]
        groups = [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    except (AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"the kubeconfig {files} cannot be used: of its user, as-groups is no list, or as-user-extra no map of "
            "lists; correct it"
        ) from error
    name, uid = str(user.get("as") or ""), str(user.get("as-uid") or "")
    if not name:
        if uid or groups or extra:
            raise ConfigurationError(
                f"the kubeconfig {files} cannot be used: its user has as-uid, as-groups or as-user-extra without as; "
                "name the user in as, or remove them"
            )
        return ()
    return (("Impersonate-User", name), *([("Impersonate-Uid", uid)] if uid else []), *groups, *extra)


def _kubeconfig_files(named: Path | None) -> str | None:
    """Paths as in $KUBECONFIG; None when there is no kubeconfig at all."""
    files = str(named or "") or os.environ.get("KUBECONFIG", "")
    if not files and not DEFAULT_KUBECONFIG.exists():
        return None
    files = files or str(DEFAULT_KUBECONFIG)
    if not any(Path(file).expanduser().is_file() for file in files.split(os.pathsep)):
        raise ConfigurationError(
            f"the kubeconfig {files} does not exist: name another by --kubeconfig or KUBECONFIG"
        )
    return files


def _pod_namespace() -> str | None:
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip() or None
    except OSError:
        return None


async def _of_file(files: str, *, context: str | None) -> tuple[Configuration, KubeConfigLoader]:
    configuration = Configuration()
    try:
        # Nothing is written back: the file may belong to somebody else, and be read-only.
        loader = await load_kube_config(
            config_file=files, context=context, client_configuration=configuration, persist_config=False
        )
        loader.current_context["context"].get("namespace")  # or it is no kubeconfig
    except _MALFORMED as error:
        raise ConfigurationError(
            f"the kubeconfig {files} cannot be used: {_without_values(error)}; correct it, or choose a context "
            "(kubectl config get-contexts lists them)"
        ) from error
    if not configuration.api_key and not configuration.cert_file:
        await _check_plugin(getattr(loader, "_user", None) or {}, files=files)
    return _prepared(configuration), loader


async def _check_plugin(user: Any, *, files: str) -> None:
    """The package only logs that an exec plugin failed, and goes on without credentials: ask for the reason.

    Raises:
        ConfigurationError: the user has a plugin, and it gives nothing.
    """
    if "exec" not in user:
        return
    reason = "its answer has neither a token nor a certificate with its key"
    try:
        await ExecProvider(user["exec"]).run()
    except (ConfigException, OSError) as error:
        reason = str(error)
    raise ConfigurationError(
        f"the exec plugin {user['exec']['command']} of the kubeconfig {files} gives no credentials: {reason}; run it "
        "by hand, or log in with it again"
    )


async def _of_service_account() -> ApiAccess:
    async def read() -> Configuration:
        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise ConfigurationError(
                f"there is no kubeconfig, and no service account of a pod ({str(error).rstrip('.')}): set KUBECONFIG, "
                "or run this in a pod with a mounted service account"
            ) from error
        return _prepared(configuration)

    return ApiAccess(configuration=await read(), namespace=_pod_namespace(), read=read)


def _without_values(error: Exception) -> str:
    # The package quotes the whole entry, a user's token included.
    return re.sub(r"[/\s]*\{.*", "", str(error), flags=re.DOTALL)


def _prepared(configuration: Configuration) -> Configuration:
    configuration.connection_pool_maxsize = 0  # no limit: every watch keeps a connection for itself
    if not configuration.proxy:
        configuration.proxy = proxy_for(configuration.host)
    return configuration


def proxy_for(server: str) -> str | None:
    """The proxy of the environment for an address, from HTTPS_PROXY or HTTP_PROXY, ALL_PROXY and NO_PROXY.

    Raises:
        ConfigurationError: aiohttp cannot use it.
    """
    url = URL(server)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    if URL(proxy).scheme != "http":
        raise ConfigurationError(
            f"the proxy for {server} in the environment does not begin with http://, as it must: correct "
            f"{url.scheme.upper()}_PROXY (or ALL_PROXY), or name {url.host} in NO_PROXY"
        )
    return proxy
