"""What TDCS needs of the API server, as a protocol on plain dicts. `tdcs.kube.client` implements it.

Objects stay the JSON that the server sent: decoding thousands of pods into typed models is what makes Python
operators slow.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource


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

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None: ...

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

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        """Create an object; ConflictError when it exists.

        With `dry_run` the server only checks it, as strictly as for `kubectl apply`: fields that it does not know are
        refused, too.
        """
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

    async def merge_status(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        """The same of ``status`` alone: also of what other managers have written, and to take fields away."""
        ...

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        foreground: bool = False,
    ) -> bool:
        """Delete an object and, in the background, what it owns.

        With `uid` only that incarnation. `foreground`: the object is there until what it owns is gone. Returns False
        when there was nothing to delete.
        """
        ...

    async def request_token(self, *, namespace: str, account: str, audience: str, seconds: int) -> str:
        """A new token of a ServiceAccount, for this audience alone, and for so many seconds."""
        ...

    async def close(self) -> None: ...
