"""Access to the API server on plain dicts: the protocol, and its implementation.

Objects stay the JSON that the server sent: decoding thousands of pods into typed models is what makes Python
operators slow. lightkube gives configuration, credentials and TLS; the handful of requests are made
here, because its generic resources can neither ask for watch bookmarks nor start a watch exactly
where a list ended.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx2
import msgspec
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User

from tdcs.api import names
from tdcs.kube.errors import NotFoundError, error_class
from tdcs.kube.resources import Resource
from tdcs.kube.transport import AiohttpTransport

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

LIST_CHUNK = 500
"""Objects a page of a list: the API server's own default page for clients that page."""

REQUEST_TIMEOUT = 30.0
"""Seconds for one request; a watch instead ends by its own `max_seconds`."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """The result of a list: the objects and the version at which a watch may continue."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch. For ``BOOKMARK`` only the object's resource version has a meaning."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class KubeApi(Protocol):
    """What TDCS needs of the API server. All errors are `tdcs.kube.errors.KubeError`."""

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when it does not exist."""
        ...

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        keep: Callable[[Object], Object] | None = None,
    ) -> ObjectList:
        """All objects that match the selectors, read in pages; without a namespace, of all namespaces.

        With `keep` only what it makes of each object is kept, so that no more than a page is ever held in full.
        """
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        max_seconds: float = 300.0,
        gather: float = 0.0,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `resource_version`.

        Ends when the server closes the stream, at the latest after `max_seconds`. After some changes those of the next
        `gather` seconds come together, at less cost.
        """
        ...

    async def create(self, resource: Resource, *, obj: Object) -> Object:
        """Create an object; ConflictError when it exists."""
        ...

    async def apply(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        """Server-side apply with field manager ``tdcs``, taking over fields that others own."""
        ...

    async def apply_status(self, resource: Resource, *, obj: Object) -> Object:
        """Server-side apply of ``status`` alone; `obj` needs metadata and status only."""
        ...

    async def merge(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        """JSON merge patch; put ``metadata.resourceVersion`` into it to fail when the object has changed."""
        ...

    async def delete(
        self, resource: Resource, *, name: str, namespace: str | None = None, uid: str | None = None
    ) -> bool:
        """Delete an object and, in the background, what it owns.

        With `uid` only that incarnation. Returns False when there was nothing to delete.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class LightkubeApi:
    """`KubeApi` over HTTP, with lightkube's configuration and credentials.

    Without `config` the usual places are tried: ``$KUBECONFIG``, ``~/.kube/config``, the service account.

    Raises:
        lightkube.core.exceptions.ConfigError: no usable configuration was found.
    """

    def __init__(self, *, config: KubeConfig | SingleConfig | None = None) -> None:
        found = config or KubeConfig.from_env()
        single = found.get() if isinstance(found, KubeConfig) else found
        if single is None:
            raise ValueError(
                "the kubeconfig names no current context: choose one with kubectl config use-context"
            )
        verify = verify_cluster(single.cluster, single.user or User(), single.abs_file)
        self._http = httpx2.AsyncClient(
            base_url=single.cluster.server,
            auth=user_auth(single.user),
            timeout=httpx2.Timeout(REQUEST_TIMEOUT),
            transport=AiohttpTransport(verify=verify, server=single.cluster.server),
        )

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        try:
            return await self._send("GET", "get", resource, namespace=namespace, name=name)
        except NotFoundError:
            return None

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        keep: Callable[[Object], Object] | None = None,
    ) -> ObjectList:
        items: list[Object] = []
        params = _params(limit=str(LIST_CHUNK), labelSelector=labels, fieldSelector=fields)
        while True:
            page = await self._send("GET", "list", resource, namespace=namespace, params=params)
            # Items of a list lack their type; callers get whole objects.
            whole = (
                {"apiVersion": resource.api_version, "kind": resource.kind, **item}
                for item in page["items"] or ()
            )
            items += whole if keep is None else map(keep, whole)
            following = page["metadata"].get("continue")
            if not following:
                return ObjectList(items=items, resource_version=page["metadata"].get("resourceVersion", ""))
            params = {**params, "continue": following}

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        max_seconds: float = 300.0,
        gather: float = 0.0,
    ) -> AsyncIterator[WatchEvent]:
        params = _params(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(int(max_seconds)),
            labelSelector=labels,
            fieldSelector=fields,
        )
        # A half-open connection would hang for ever without a read limit of our own.
        limit = httpx2.Timeout(REQUEST_TIMEOUT, read=max_seconds + REQUEST_TIMEOUT)
        path = resource.path(namespace=namespace)
        try:
            async with self._http.stream("GET", path, params=params, timeout=limit) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise _failure(response, verb="watch", resource=resource, namespace=namespace, name=None)
                rest = b""
                async for piece in response.aiter_bytes():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in filter(None, lines):
                        yield _event(msgspec.json.decode(line), resource=resource, namespace=namespace)
                    if lines:
                        await asyncio.sleep(gather)
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise _silence(error, verb="watch", resource=resource, namespace=namespace, name=None) from error

    async def create(self, resource: Resource, *, obj: Object) -> Object:
        namespace = obj["metadata"].get("namespace")
        return await self._send("POST", "create", resource, namespace=namespace, body=obj, label=_name(obj))

    async def apply(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        params = _params(fieldManager=names.FIELD_MANAGER, force="true", dryRun="All" if dry_run else None)
        return await self._patch("apply", resource, obj=obj, params=params)

    async def apply_status(self, resource: Resource, *, obj: Object) -> Object:
        params = _params(fieldManager=names.FIELD_MANAGER, force="true")
        return await self._patch(
            "apply the status of", resource, obj=obj, params=params, subresource="status"
        )

    async def merge(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        return await self._send(
            "PATCH",
            "patch",
            resource,
            namespace=namespace,
            name=name,
            params=_params(fieldManager=names.FIELD_MANAGER),
            body=patch,
            content_type=_MERGE,
        )

    async def delete(
        self, resource: Resource, *, name: str, namespace: str | None = None, uid: str | None = None
    ) -> bool:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._send("DELETE", "delete", resource, namespace=namespace, name=name, body=body)
        except NotFoundError:
            return False
        return True

    async def close(self) -> None:
        await self._http.aclose()

    async def _patch(
        self, verb: str, resource: Resource, *, obj: Object, params: dict[str, str], subresource: str = ""
    ) -> Object:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self._send(
            "PATCH",
            verb,
            resource,
            namespace=obj["metadata"].get("namespace"),
            name=_name(obj),
            subresource=subresource,
            params=params,
            body=body,
            content_type=_APPLY,
        )

    async def _send(
        self,
        method: str,
        verb: str,
        resource: Resource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
        params: dict[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
        label: str | None = None,
    ) -> Object:
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": content_type} if body is not None else None
        try:
            response = await self._http.request(method, path, params=params, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise _silence(
                error, verb=verb, resource=resource, namespace=namespace, name=name or label
            ) from error
        if response.status_code >= 400:
            raise _failure(response, verb=verb, resource=resource, namespace=namespace, name=name or label)
        decoded: Object = response.json()
        return decoded


def _params(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _event(line: Object, *, resource: Resource, namespace: str | None) -> WatchEvent:
    if line["type"] == "ERROR":
        status = line["object"]
        code = int(status.get("code", 0))
        raise error_class(code=code)(
            verb="watch",
            resource=resource,
            namespace=namespace,
            name=None,
            code=code,
            reason=status.get("reason", ""),
            detail=status.get("message", "the server ended the watch with an error"),
        )
    return WatchEvent(type=line["type"], object=line["object"])


def _failure(
    response: httpx2.Response, *, verb: str, resource: Resource, namespace: str | None, name: str | None
) -> Exception:
    reason, detail = "", response.text[:500]
    try:
        status = response.json()
    except ValueError:  # a proxy's or the server's plain text
        status = None
    if isinstance(status, dict):
        reason, detail = str(status.get("reason") or ""), str(status.get("message") or detail)
    return error_class(code=response.status_code, detail=detail)(
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        code=response.status_code,
        reason=reason,
        detail=detail,
    )


def _silence(
    error: Exception, *, verb: str, resource: Resource, namespace: str | None, name: str | None
) -> Exception:
    return error_class(code=0)(
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        code=0,
        reason=type(error).__name__,
        detail=f"the API server did not answer: {error}",
    )
