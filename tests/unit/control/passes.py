"""The operator's loop for tests: it comes back soon, and keeps the defects that the operator would only log."""

import asyncio
from collections.abc import Awaitable, Callable

from tdcs.control.context import WorkKey
from tdcs.kube.errors import ConflictError
from tdcs.kube.queue import KeyedQueue


async def work_off(
    queue: KeyedQueue[WorkKey],
    reconcile: Callable[[WorkKey], Awaitable[float | None]],
    *,
    defects: list[Exception],
    most_wait: float,
) -> None:
    """Reconcile each key of the queue, until cancelled; what asks to be looked at later waits `most_wait` s at most."""
    while True:
        await asyncio.sleep(0)  # as an API server's answers let others go on
        key = await queue.get()
        failed = False
        try:
            again = await reconcile(key)
            if again is not None:
                queue.add_after(key, min(again, most_wait))
        except ConflictError:
            failed = True
        except Exception as defect:
            defects.append(defect)
            failed = True
        finally:
            queue.done(key, failed=failed)
