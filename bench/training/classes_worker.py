"""The server, or a worker, of the benchmark `classes`: channels of parameter servers with a tensor each."""

import json
import queue
import socket
import sys
import time

from tdcs_train.ps.calling import call
from tdcs_train.ps.channel import Channel, Tensors, greet, greeting
from tdcs_train.ps.classes import CLASSES, CONTROL

PORT = 29200
CLASS_OF = (CLASSES - 1, 0)
"""Worker 0 sends in the most urgent class, worker 1 in the least urgent one."""


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def channel_of(
    rank: int, sockets: dict[int, socket.socket], size: int, arrived: "queue.SimpleQueue[tuple[int, float]]"
) -> Channel:
    """The server's end of a worker."""
    memory = memoryview(bytearray(size))
    return Channel(
        [sockets[number] for number in sorted(sockets)],
        peer=f"worker {rank}",
        tensors=Tensors(
            place=lambda _: memory,
            complete=lambda _: arrived.put((rank, time.monotonic())),
            absent=lambda _: None,
        ),
    )


def serve(sizes: list[int]) -> None:
    """Prints when the tensor of a worker is there, until its input ends."""
    by_worker: list[dict[int, socket.socket]] = [{} for _ in sizes]
    arrived: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
    with socket.create_server(("", PORT)) as listener:
        while any(len(by_class) <= CONTROL for by_class in by_worker):
            connection, _ = listener.accept()
            hello = greeting(connection, peer="a worker")
            by_worker[hello["worker"]][hello["class"]] = connection
    channels = [channel_of(rank, sockets, sizes[rank], arrived) for rank, sockets in enumerate(by_worker)]
    say(ready=True)
    while not all(channel.peer_done for channel in channels):
        try:
            rank, moment = arrived.get(timeout=0.2)
        except queue.Empty:
            continue
        say(worker=rank, arrived=moment)
    for channel in channels:
        channel.release()


def send(rank: int, host: str, size: int) -> None:
    """Sends its tensor for every line of its input, and prints when."""
    sockets = []
    for priority in range(CONTROL + 1):
        sockets.append(call((host, PORT), name="the server", deadline=time.monotonic() + 30))
        greet(sockets[-1], {"worker": rank, "class": priority})
    nothing = Tensors(place=lambda _: memoryview(b""), complete=lambda _: None, absent=lambda _: None)
    channel = Channel(sockets, peer="the server", tensors=nothing)
    memory = memoryview(bytes(size))
    for _ in sys.stdin:
        say(sent=time.monotonic())
        channel.send(0, memory, priority=1, priority_class=CLASS_OF[rank])
    channel.close()


def main() -> None:
    role, *words = sys.argv[1:]
    if role == "serve":
        serve([int(word) for word in words])
    else:
        send(int(words[0]), words[1], int(words[2]))


if __name__ == "__main__":
    main()
