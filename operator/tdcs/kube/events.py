"""Events on objects: one per object, reason and message, counted, so that a retry cannot flood the server."""

import datetime
import functools
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Literal

from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ConflictError, KubeError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import EVENTS

_log = logging.getLogger(__name__)

NOTE_LIMIT = 1000
"""Characters of an event's message: the server refuses more than 1024."""

EventType = Literal["Normal", "Warning"]


class EventRecorder:
    """Writes events. A failure to write one is logged and otherwise ignored: events are a courtesy.

    Args:
        component: who reports, shown by `kubectl describe`.
        now: the time, RFC 3339 with seconds.
    """

    def __init__(self, *, api: KubeApi, component: str, now: Callable[[], str]) -> None:
        self._api = api
        self._component = component
        self._now = now

    async def record(self, *, about: Object, reason: str, message: str, type_: EventType = "Normal") -> None:
        """Tell about a change of an object's state. `reason` is one PascalCase word."""
        metadata = about["metadata"]
        # The server wants events about cluster-scoped objects in the default namespace.
        namespace = metadata.get("namespace") or "default"
        note = message[:NOTE_LIMIT]
        seed = "\0".join((metadata.get("uid", ""), type_, reason, note)).encode()
        name = f"{metadata['name'][:200]}.{hashlib.sha256(seed).hexdigest()[:16]}"
        now = self._now()
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata.get("uid", ""),
            },
            "type": type_,
            "reason": reason,
            "message": note,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._write(event)
        except KubeError as error:
            _log.warning("event %s about %s %s was lost: %s", reason, about["kind"], metadata["name"], error)

    async def _write(self, event: Object) -> None:
        try:
            await self._api.create(EVENTS, obj=event)
        except ConflictError:
            name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
            existing = await self._api.get(EVENTS, name=name, namespace=namespace)
            count = int((existing or {}).get("count") or 0) + 1
            patch = {"count": count, "lastTimestamp": event["lastTimestamp"]}
            await self._api.merge(EVENTS, name=name, namespace=namespace, patch=patch)


def utc_now() -> str:
    """Now, as Kubernetes writes it: UTC, RFC 3339, whole seconds."""
    return _written(int(time.time()))


@functools.lru_cache(maxsize=4)
def _written(seconds: int) -> str:
    """A time: passes ask for the same second again and again."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
