"""A thread of actors: one loop over two queues."""

import heapq
import itertools
import threading
from collections import deque
from queue import SimpleQueue

from tdcs_train.actors.actor import Actor, Message, Post


class ActorThread(threading.Thread):
    """Runs the actors of one thread, an act at a time.

    Messages of its own actors come by a queue without a lock, those of other threads by a channel. All messages that
    are there are handled before the next act; of several actors that could act, the most urgent one does.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.local: deque[Message] = deque()
        self.channel: SimpleQueue[Message | None] = SimpleQueue()
        self._ready: list[tuple[int, int, Actor]] = []
        self._turns = itertools.count()
        self.acting: Actor | None = None
        """The actor whose kernel runs now, for who watches from another thread."""

    def post_from(self, other: "ActorThread | None") -> Post:
        """How actors of another thread (or of none) send to actors of this one."""
        return self.local.append if other is self else self.channel.put

    def wake(self, actor: Actor) -> None:
        """Give an actor a turn; called on this thread."""
        heapq.heappush(self._ready, (-actor.task.urgency, next(self._turns), actor))

    def stop(self) -> None:
        """End the loop when it comes to that message."""
        self.channel.put(None)

    def run(self) -> None:
        """Handle messages and act, until `stop`."""
        local, channel, ready = self.local, self.channel, self._ready
        before = None
        while True:
            if not local and not ready:
                message = channel.get()
                if message is None:
                    return
                local.append(message)
            while not channel.empty():
                message = channel.get()
                if message is None:
                    return
                local.append(message)
            while local:
                handler, payload, when, cause = local.popleft()
                handler(payload, when, cause)
            if ready:
                self.acting = heapq.heappop(ready)[2]
                before = self.acting.act(before)
                self.acting = None
