"""Children: written with server-side apply, but only when they differ, and never over a stranger's object."""

import hashlib
import json
from typing import Any

from tdcs.api import names
from tdcs.kube.api import KubeApi
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource

ANNOTATION_DIGEST = "tdcs.io/applied-digest"
"""On a child: digest of what was applied, so that a field that is no longer wanted is noticed as well."""


class ForeignObjectError(Exception):
    """An object of the wanted name exists and belongs to somebody else; it is left alone."""

    sentence = (
        "{child} exists and was not made for {owner}, so it is left as it is; delete or rename it, or choose another "
        "name for {owner}"
    )

    def __init__(self, *, resource: Resource, namespace: str, name: str, owner: str) -> None:
        where = f"{namespace}/{name}" if namespace else name
        super().__init__(self.sentence.format(child=f"{resource.kind} {where}", owner=owner))


class PredecessorError(ForeignObjectError):
    """An object of the wanted name is about to be gone: an earlier owner of the same name has left it."""

    sentence = (
        "{child} of an earlier object of that name is being deleted; {owner} goes on as soon as it is gone"
    )


def foreign(*, resource: Resource, live: Object, owner: Object) -> ForeignObjectError:
    """Why a child cannot be made next to an object of its name: that is a stranger's, or will soon be gone."""
    metadata, title = live["metadata"], f"{owner['kind']} {owner['metadata']['name']}"
    group = owner["apiVersion"].partition("/")[0]
    earlier = any(
        (reference.get("kind"), reference.get("name")) == (owner["kind"], owner["metadata"]["name"])
        and str(reference.get("apiVersion", "")).partition("/")[0] == group
        for reference in metadata.get("ownerReferences") or ()
    )
    kind = PredecessorError if earlier or metadata.get("deletionTimestamp") else ForeignObjectError
    return kind(
        resource=resource, namespace=metadata.get("namespace", ""), name=metadata["name"], owner=title
    )


class Applier:
    """Writes wanted children, and remembers what the server made of them.

    A pass over children that are as wanted writes nothing.
    """

    def __init__(self, *, api: KubeApi) -> None:
        self._api = api
        self._settled: dict[tuple[str, str, str], tuple[str, str, str]] = {}

    async def apply(
        self, resource: Resource, *, wanted: Object, live: Object | None, owner: Object
    ) -> Object:
        """The child as it is on the server after this call.

        Args:
            resource: its type.
            wanted: everything TDCS wants to own of it; metadata gets a digest.
            live: the child as last seen, None when it is not there.
            owner: the custom resource it belongs to, for the check that the child is its own.

        Raises:
            ForeignObjectError: an object of that name belongs to somebody else; a PredecessorError when it is about
                to be gone.
            KubeError: the server refused, or does not answer.
        """
        metadata = wanted["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if live is not None and not belongs(live, owner):
            raise foreign(resource=resource, live=live, owner=owner)
        digest = digest_of(wanted)
        place = (resource.plural, namespace, name)
        if live is not None and self._same(place, wanted=wanted, digest=digest, live=live):
            return live
        annotations = {**metadata.get("annotations", {}), ANNOTATION_DIGEST: digest}
        stamped = {**wanted, "metadata": {**metadata, "annotations": annotations}}
        written = await self._api.apply(resource, obj=stamped)
        self._settled[place] = (digest, written["metadata"]["uid"], _content(written))
        return written

    def drop_applied(self, resource: Resource, *, namespace: str, name: str) -> None:
        self._settled.pop((resource.plural, namespace, name), None)

    def _same(self, place: tuple[str, str, str], *, wanted: Object, digest: str, live: Object) -> bool:
        if live["metadata"].get("annotations", {}).get(ANNOTATION_DIGEST) != digest:
            return False
        if covers(live, wanted):
            return True
        # The server writes some values differently (1000m becomes 1) and drops empty ones: what it made of
        # this very specification counts as equal while it stands.
        return self._settled.get(place) == (digest, live["metadata"]["uid"], _content(live))


def belongs(live: Object, owner: Object) -> bool:
    """Whether a live object was made for `owner`: by owner reference, or, for a PersistentVolume, by labels."""
    metadata = live["metadata"]
    uid = owner["metadata"].get("uid")
    references = metadata.get("ownerReferences") or ()
    if any(reference.get("uid") == uid for reference in references):
        return True
    labels = metadata.get("labels", {})
    return (
        not references
        and not metadata.get("namespace")
        and labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
        and labels.get(names.LABEL_DATASET_NAMESPACE) == owner["metadata"].get("namespace")
        and labels.get(names.LABEL_DATASET_NAME) == owner["metadata"]["name"]
    )


def covers(live: Any, desired: Any) -> bool:
    """Whether everything in `desired` is in `live` with the same value; lists must be of the same length."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            key in live and covers(live[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(
                covers(live_item, desired_item) for live_item, desired_item in zip(live, desired, strict=True)
            )
        )
    return bool(live == desired)


def digest_of(obj: Any) -> str:
    """16 hexadecimal digits that depend on the value alone."""
    return hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()[:16]


def owner_reference(owner: Object) -> Object:
    """The controller reference of a child; deleting the owner deletes the child."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _content(obj: Object) -> str:
    """A digest of everything but metadata and status."""
    return digest_of({key: value for key, value in obj.items() if key not in {"metadata", "status"}})
