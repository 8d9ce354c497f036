"""`KubeApi` over HTTP: the handful of requests that TDCS makes, on plain JSON.

They are made here and not by the package's generated calls, which build typed models; their watch can neither
gather events nor start exactly where a list ended.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tdcs.api import names
from tdcs.kube.api import ObjectList, WatchEvent
from tdcs.kube.configuration import ApiAccess, ConfigurationError, load_access
from tdcs.kube.connection import JSON, ApiConnection
from tdcs.kube.errors import NotFoundError, error_class
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import EVENTS, LEASES, SERVICE_ACCOUNTS, Resource, is_name

LIST_CHUNK = 500
"""Objects a page of a list: the API server's own default page for clients that page."""

AT_ONCE = 50
"""Objects of a page that are decoded at a time: others use the event loop in between."""

REQUEST_TIMEOUT = 30.0
"""Seconds for one request; a watch instead ends by its own `max_seconds`."""

DEEPEST = 10_000
"""Levels that an object may have for the API server (`maxNestingDepth` of sigs.k8s.io/json)."""

_FRAMES = 4
"""Calls that some functions, such as `copy.deepcopy`, have under way for each level."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"


class _MisfitError(Exception):
    """An answer in JSON that is not what was asked for, as from something that stands in front of the server."""


class Page(msgspec.Struct):
    """A page of a list, whose objects are decoded one by one: together they take ten times their text.

    An answer without items would look like a view in which everything is gone; it does not decode.
    """

    metadata: dict[str, Any]
    items: list[msgspec.Raw] | None


_NO_ANSWER = (
    *(aiohttp.ClientError, TimeoutError, OSError, ConfigurationError),
    *(msgspec.DecodeError, _MisfitError),
)


async def connect(*, kubeconfig: Path | None = None, context: str | None = None) -> "KubernetesClient":
    """A client of the API server that kubectl would use, see `load_access`. Raises ConfigurationError."""
    return KubernetesClient(access=await load_access(kubeconfig=kubeconfig, context=context))


class KubernetesClient:
    """`KubeApi` over HTTP, in one event loop.

    Args:
        access: where the server is, and who asks.
        may_write: asked before each request that changes something but Leases, by which it is decided, and
            Events, which are a courtesy.

    Attributes:
        default_namespace: of the kubeconfig's context, or of the pod; None when neither names one.
    """

    def __init__(self, *, access: ApiAccess, may_write: Callable[[], bool] = lambda: True) -> None:
        # Parsers go by Python's limit of 1,000, kopf's too: one deep object would end every list that it is in.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES * DEEPEST))
        self.default_namespace = access.namespace
        self._may_write = may_write
        self._connection = ApiConnection(access=access)

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        if not is_name(name):
            return None
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
            page, metadata = await self._page(resource, namespace=namespace, params=params, keep=keep)
            items += page
            following = metadata.get("continue")
            if not following:
                return ObjectList(items=items, resource_version=metadata.get("resourceVersion", ""))
            params = {**params, "continue": following}

    async def _page(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        params: dict[str, str],
        keep: Callable[[Object], Object] | None,
    ) -> tuple[Sequence[Object], Mapping[str, Any]]:
        """The objects of one page of a list, and the list's metadata."""
        page: Page = await self._ask(
            "GET", "list", resource, namespace=namespace, params=params, decode=page_of
        )
        items: list[Object] = []
        try:
            for content in page.items or ():
                item = item_of(content, resource=resource)
                items.append(item if keep is None else keep(item))
                if len(items) % AT_ONCE == 0:
                    await asyncio.sleep(0)
        except (msgspec.DecodeError, _MisfitError) as error:
            raise _silence(error, verb="list", resource=resource, namespace=namespace, name=None) from error
        return items, page.metadata

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
        try:
            async with self._connection.request(
                "GET",
                resource.path(namespace=namespace),
                params=params,
                # A half-open connection would hang forever without a read limit of our own.
                read_seconds=max_seconds + REQUEST_TIMEOUT,
                connect_seconds=REQUEST_TIMEOUT,
            ) as response:
                if response.status >= 400:
                    raise _failure(
                        response.status,
                        await response.read(),
                        verb="watch",
                        resource=resource,
                        namespace=namespace,
                        name=None,
                    )
                unfinished = b""
                async for piece in response.content.iter_any():
                    *lines, unfinished = (unfinished + piece).split(b"\n")
                    for line in filter(None, lines):
                        yield _event(msgspec.json.decode(line), resource=resource, namespace=namespace)
                    if lines:
                        await asyncio.sleep(gather)
        except _NO_ANSWER as error:
            raise _silence(error, verb="watch", resource=resource, namespace=namespace, name=None) from error

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        namespace = obj["metadata"].get("namespace")
        params = _params(dryRun="All", fieldValidation="Strict") if dry_run else None
        name = str(obj["metadata"].get("name", ""))  # what the server only answers has none
        return await self._send(
            "POST", "create", resource, namespace=namespace, params=params, body=obj, label=name
        )

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
        return await self._merge("patch", resource, name=name, namespace=namespace, patch=patch)

    async def merge_status(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        return await self._merge(
            "patch the status of", resource, name=name, namespace=namespace, patch=patch, subresource="status"
        )

    async def _merge(
        self,
        verb: str,
        resource: Resource,
        *,
        name: str,
        namespace: str | None,
        patch: Mapping[str, Any],
        subresource: str = "",
    ) -> Object:
        return await self._send(
            "PATCH",
            verb,
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            params=_params(fieldManager=names.FIELD_MANAGER),
            body=patch,
            content_type=_MERGE,
        )

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        foreground: bool = False,
    ) -> bool:
        policy = "Foreground" if foreground else "Background"
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._send("DELETE", "delete", resource, namespace=namespace, name=name, body=body)
        except NotFoundError:
            return False
        return True

    async def request_token(self, *, namespace: str, account: str, audience: str, seconds: int) -> str:
        answer = await self._send(
            "POST",
            "create a token of",
            SERVICE_ACCOUNTS,
            namespace=namespace,
            name=account,
            subresource="token",
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [audience], "expirationSeconds": seconds},
            },
        )
        return str((answer.get("status") or {}).get("token") or "")

    async def close(self) -> None:
        await self._connection.close()

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

    async def _send(self, method: str, verb: str, resource: Resource, **options: Any) -> Object:
        """As `_ask`, of whatever answers with an object."""
        decoded: Object = await self._ask(method, verb, resource, decode=msgspec.json.decode, **options)
        return decoded

    async def _ask(
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
        content_type: str = JSON,
        label: str | None = None,
        decode: Callable[[bytes], Any],
    ) -> Any:
        if method != "GET" and resource not in (EVENTS, LEASES) and not self._may_write():
            raise error_class(code=0)(
                verb=verb,
                resource=resource,
                namespace=namespace,
                name=name or label,
                code=0,
                reason="NoLease",
                detail="this process does not hold its Lease, so it writes nothing",
            )
        try:
            async with self._connection.request(
                method,
                resource.path(namespace=namespace, name=name, subresource=subresource),
                params=params,
                body=body,
                content_type=content_type,
                read_seconds=REQUEST_TIMEOUT,
                connect_seconds=REQUEST_TIMEOUT,
            ) as response:
                status, content = response.status, await response.read()
            if status < 400:
                return decode(content)
        except _NO_ANSWER as error:
            raise _silence(
                error, verb=verb, resource=resource, namespace=namespace, name=name or label
            ) from error
        raise _failure(status, content, verb=verb, resource=resource, namespace=namespace, name=name or label)


def _params(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def page_of(content: bytes) -> Page:
    """A page of a list."""
    try:
        return msgspec.json.decode(content, type=Page)
    except msgspec.ValidationError as error:
        raise _MisfitError("it is no list") from error


def item_of(content: msgspec.Raw, *, resource: Resource) -> Object:
    """An object of a page, with its type, which lists leave out; callers get whole objects."""
    item = msgspec.json.decode(content)
    if not _is_object(item):
        raise _MisfitError("it is no list")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}


def _is_object(decoded: object) -> bool:
    return isinstance(decoded, dict) and isinstance(decoded.get("metadata"), dict)


def _event(line: Any, *, resource: Resource, namespace: str | None) -> WatchEvent:
    if not isinstance(line, dict) or not isinstance(line.get("object"), dict) or "type" not in line:
        raise _MisfitError("it is no event")
    if line["type"] != "ERROR" and not _is_object(line["object"]):
        raise _MisfitError("it is no event of an object")
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
    code: int, content: bytes, *, verb: str, resource: Resource, namespace: str | None, name: str | None
) -> Exception:
    reason, detail = "", content.decode(errors="replace")[:500]
    try:
        status = msgspec.json.decode(content)
    except ValueError:  # a proxy's or the server's plain text
        status = None
    if isinstance(status, dict):
        reason, detail = str(status.get("reason") or ""), str(status.get("message") or detail)
    return error_class(code=code, detail=detail)(
        verb=verb, resource=resource, namespace=namespace, name=name, code=code, reason=reason, detail=detail
    )


def _silence(
    error: Exception, *, verb: str, resource: Resource, namespace: str | None, name: str | None
) -> Exception:
    wrongly = " with JSON" if isinstance(error, msgspec.DecodeError) else ""
    wrongly = " with what was asked for" if isinstance(error, _MisfitError) else wrongly
    return error_class(code=0)(
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        code=0,
        reason=type(error).__name__,
        detail=f"the API server did not answer{wrongly}: {str(error) or type(error).__name__}",
    )
