"""Events on pods with a datasets annotation that cannot be read, or that names what does not exist: their owners see
events, and not the extender's log."""

import asyncio
import datetime
from typing import Final

from tdcs.kube.api import KubeApi
from tdcs.kube.events import EventRecorder
from tdcs_scheduler.protocol import PrioritizeRequest


class PodEvents:
    """Writes an event on a pod in the background: kube-scheduler waits for none of them."""

    def __init__(self, *, api: KubeApi) -> None:
        self._recorder: Final = EventRecorder(api=api, component="tdcs-scheduler", now=_now)
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def __call__(self, *, request: PrioritizeRequest, reason: str, message: str) -> None:
        """Write the event on the pod of a request; returns at once."""
        task = asyncio.get_running_loop().create_task(
            self._record(request=request, reason=reason, message=message)
        )
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)

    async def _record(self, *, request: PrioritizeRequest, reason: str, message: str) -> None:
        namespace, name = request.key
        metadata = {"name": name, "namespace": namespace, "uid": request.uid}
        await self._recorder.record(
            about={"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
            reason=reason,
            message=message,
            type_="Warning",
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
