"""Objects of the former version of the API, rewritten for this one. Pure, but for the documents that are changed.

A document is whatever mapping a YAML reader made; keys keep their places, so that a reader that knows comments can keep
them. Nothing of a document that is refused is changed.
"""

import copy
import math
import re
from collections.abc import Callable, MutableMapping
from typing import Any

from tdcs.api import names
from tdcs.api.durations import DURATION_PATTERN

FORMER = f"{names.GROUP}/{names.FORMER_VERSION}"

ROLES = ("Chief", "Launcher", "PS", "Worker")

_SERVER_METADATA = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_DAYS = re.compile(r"^(?:([0-9]+)d)(?:([0-9]+)h)?((?:[0-9]+m)?(?:[0-9]+s)?)$")

Document = MutableMapping[str, Any]
Rename = Callable[[Document, str, str, Any], None]
"""Puts a value under a new key in the place of an old one."""


class MigrationError(ValueError):
    """A document that cannot be rewritten: the object, the field, and what to do."""


def rename(mapping: Document, old: str, new: str, value: Any) -> None:
    """Put a value under a new key in the place of an old one."""
    items = [(new, value) if key == old else (key, found) for key, found in mapping.items()]
    mapping.clear()
    mapping.update(items)


def migrate(document: Any, *, home: str = names.SYSTEM_NAMESPACE, renamed: Rename = rename) -> list[str]:
    """Rewrite one document in place.

    Args:
        document: what the YAML reader made of it; anything that is no object of TDCS stays as it is.
        home: the operator's namespace, in which CacheClusters live.
        renamed: renames a key; a reader that keeps comments brings its own.

    Returns:
        What was changed, a sentence each; none where nothing had to be.

    Raises:
        MigrationError: a field is not as the former version has it.
    """
    if not isinstance(document, MutableMapping):
        return []
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        return [change for item in document["items"] for change in migrate(item, home=home, renamed=renamed)]
    if document.get("apiVersion") != FORMER:
        return []
    return _Rewriting(document, home=home, renamed=renamed).run()


class _Rewriting:
    """The rewriting of one object; it notes what it changes."""

    def __init__(self, document: Document, *, home: str, renamed: Rename) -> None:
        self._document = document
        self._home = home
        self._rename = renamed
        self._changes: list[str] = []
        self._title = str(document.get("kind"))
        metadata = self._mapping(document, "metadata", "metadata")
        self._title = f"{document.get('kind')} {metadata.get('name', metadata.get('generateName', '?'))}"

    def run(self) -> list[str]:
        spec = self._mapping(self._document, "spec", "spec")
        kinds: dict[str, Callable[[Document], None]] = {
            names.KIND_CACHE_CLUSTER: self._cache_cluster,
            names.KIND_DATASET: self._dataset,
            names.KIND_PRELOAD: self._preload,
            names.KIND_TRAINING_JOB: self._training_job,
        }
        kind = str(self._document.get("kind"))
        if kind not in kinds:
            raise MigrationError(
                f"{self._title}: {FORMER} has no kind {kind}; it has {', '.join(sorted(kinds))}: correct kind"
            )
        kinds[kind](spec)
        self._server_fields()
        self._document["apiVersion"] = names.API_VERSION
        self._note(f"apiVersion is {names.API_VERSION}")
        return self._changes

    def _cache_cluster(self, spec: Document) -> None:
        metadata = self._mapping(self._document, "metadata", "metadata")
        if metadata.get("namespace") != self._home:
            metadata["namespace"] = self._home
            self._note(f"metadata.namespace is {self._home}, the operator's")
        self._duration(
            self._mapping(spec, "scaling", "spec.scaling"), "drainTimeout", "spec.scaling.drainTimeout"
        )

    def _dataset(self, spec: Document) -> None:
        self._reference(spec, "cacheCluster", "cacheClusterRef")
        self._percent(self._mapping(spec, "preload", "spec.preload"), "spec.preload", least=1)
        self._duration(
            self._mapping(spec, "source", "spec.source"), "checkInterval", "spec.source.checkInterval"
        )

    def _preload(self, spec: Document) -> None:
        self._reference(spec, "dataset", "datasetRef")
        self._percent(spec, "spec", least=1)

    def _training_job(self, spec: Document) -> None:
        uses = spec.get("datasets") or []
        if not isinstance(uses, list):
            raise self._error("spec.datasets", "is no list")
        for number, use in enumerate(uses):
            where = f"spec.datasets[{number}]"
            if not isinstance(use, MutableMapping):
                raise self._error(where, "is no mapping")
            readiness = self._mapping(use, "readiness", f"{where}.readiness")
            self._percent(readiness, f"{where}.readiness", least=0)
            self._duration(readiness, "timeout", f"{where}.readiness.timeout")
        self._roles(spec)

    def _roles(self, spec: Document) -> None:
        roles = spec.get("replicaSpecs")
        if roles is None or isinstance(roles, list):
            return
        if not isinstance(roles, MutableMapping):
            raise self._error("spec.replicaSpecs", "is neither a mapping of roles nor a list")
        for role, found in roles.items():
            if role not in ROLES:
                raise self._error(f"spec.replicaSpecs.{role}", f"is no role; there are {', '.join(ROLES)}")
            if not isinstance(found, MutableMapping):
                raise self._error(f"spec.replicaSpecs.{role}", "is no mapping")
        workers = (roles.get("Worker") or {}).get("replicas")
        if workers is not None and "workers" in spec:
            raise self._error(
                "spec.workers", "stands beside spec.replicaSpecs.Worker.replicas: remove one of them"
            )
        items: list[Document] = []
        for role, found in roles.items():
            if role == "Worker":
                found.pop("replicas", None)
            # Two roles may be one object: an alias in the file.
            item = copy.deepcopy(found) if any(found is other for other in items) else found
            if item is not found:
                item.pop("name")
            _insert(item, 0, "name", role)
            items.append(item)
        position = list(spec).index("replicaSpecs")
        spec["replicaSpecs"] = items
        self._note("spec.replicaSpecs is a list, each item with the role as its name")
        if workers is not None:
            _insert(spec, position, "workers", workers)
            self._note("spec.replicaSpecs.Worker.replicas is spec.workers")

    def _reference(self, spec: Document, old: str, new: str) -> None:
        if old not in spec:
            return
        if new in spec:
            raise self._error(f"spec.{old}", f"stands beside spec.{new}: remove one of them")
        if not isinstance(spec[old], str):
            raise self._error(f"spec.{old}", "is no name")
        self._rename(spec, old, new, {"name": spec[old]})
        self._note(f"spec.{old} is spec.{new}.name")

    def _percent(self, mapping: Document, where: str, *, least: int) -> None:
        if "fraction" not in mapping:
            return
        given = mapping["fraction"]
        if "percent" in mapping:
            raise self._error(f"{where}.fraction", "stands beside percent: remove one of them")
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
            raise self._error(f"{where}.fraction", f"is {given!r}, and must be a number from 0 to 1")
        exact = round(float(given) * 100, 6)
        percent = max(math.ceil(exact), least)
        self._rename(mapping, "fraction", "percent", percent)
        rounded = "" if exact == percent else ", rounded up to a whole percent"
        self._note(f"{where}.fraction {given} is {where}.percent {percent}{rounded}")

    def _duration(self, mapping: Document, field: str, where: str) -> None:
        given = mapping.get(field)
        if given is None or (isinstance(given, str) and re.fullmatch(DURATION_PATTERN, given)):
            return
        days = _DAYS.fullmatch(given) if isinstance(given, str) else None
        if days is None:
            raise self._error(where, f"is {given!r}, and must be a duration such as 90s, 10m or 1h30m")
        hours = int(days[1]) * 24 + int(days[2] or 0)
        mapping[field] = f"{hours}h{days[3]}"
        self._note(f"{where} {given} is {mapping[field]}")

    def _server_fields(self) -> None:
        if "status" in self._document:
            del self._document["status"]
            self._note("status, which is the operator's, is gone")
        metadata = self._mapping(self._document, "metadata", "metadata")
        found = [field for field in _SERVER_METADATA if field in metadata]
        for field in found:
            del metadata[field]
        annotations = metadata.get("annotations")
        if isinstance(annotations, MutableMapping) and _LAST_APPLIED in annotations:
            del annotations[_LAST_APPLIED]
            found.append(f"annotations[{_LAST_APPLIED}]")
        finalizers = metadata.get("finalizers")
        if isinstance(finalizers, list) and names.FINALIZER in finalizers:
            finalizers.remove(names.FINALIZER)
            found.append(f"finalizers[{names.FINALIZER}]")
        if found:
            self._note(f"metadata.{', metadata.'.join(found)}, which the servers set, are gone")

    def _mapping(self, parent: Document, field: str, where: str) -> Document:
        """A nested object; an empty one where there is none."""
        found = parent.get(field)
        if found is None:
            return {}
        if not isinstance(found, MutableMapping):
            raise self._error(where, "is no mapping")
        return found

    def _error(self, where: str, what: str) -> MigrationError:
        return MigrationError(f"{self._title}: {where} {what}")

    def _note(self, text: str) -> None:
        self._changes.append(f"{self._title}: {text}")


def _insert(mapping: Document, position: int, key: str, value: Any) -> None:
    insert = getattr(mapping, "insert", None)
    if insert is not None:  # a mapping that keeps comments has one
        insert(position, key, value)
        return
    items = list(mapping.items())
    items.insert(position, (key, value))
    mapping.clear()
    mapping.update(items)
