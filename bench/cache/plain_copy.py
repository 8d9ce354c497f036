"""A plain copy of files between two processes over loopback TCP: what peer-to-peer transfers are compared with.

The giver sends length and content of each file (sendfile); the taker writes each under a temporary name and renames it.
No hashes, no lists of what is there, no room, no retries.

    python -m bench.cache.plain_copy give FOLDER PORT
    python -m bench.cache.plain_copy take PORT NAMES_FILE FOLDER
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

BATCH = 128
LANES = 2
_NUMBER = struct.Struct("<q")


def give(folder: Path, port: int) -> None:
    """Serve until killed."""
    listener = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, folder), daemon=True).start()


def take(port: int, names: list[str], folder: Path) -> float:
    """Copy all files; seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = [names[begin : begin + BATCH] for begin in range(0, len(names), BATCH)]
    lock = threading.Lock()
    began = time.monotonic()

    def next_batch() -> list[str]:
        with lock:
            return batches.pop() if batches else []

    def lane() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            batch = next_batch()
            _ask(connection, batch)
            while batch:
                following = next_batch()
                _ask(connection, following)
                for name in batch:
                    _receive(connection, folder, name)
                batch = following

    threads = [threading.Thread(target=lane) for _ in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def _answer(connection: socket.socket, folder: Path) -> None:
    with connection:
        while head := connection.recv(_NUMBER.size, socket.MSG_WAITALL):
            text = connection.recv(_NUMBER.unpack(head)[0], socket.MSG_WAITALL).decode()
            for name in text.split("\n"):
                file = os.open(f"{folder}/{name}", os.O_RDONLY)
                size, done = os.fstat(file).st_size, 0
                connection.send(_NUMBER.pack(size), socket.MSG_MORE)
                while done < size:
                    done += os.sendfile(connection.fileno(), file, done, size - done)
                os.close(file)


def _ask(connection: socket.socket, names: list[str]) -> None:
    if names:
        text = "\n".join(names).encode()
        connection.sendall(_NUMBER.pack(len(text)) + text)


def _receive(connection: socket.socket, folder: Path, name: str) -> None:
    (size,) = _NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))
    draft = f"{folder}/{name}.new"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o444)
    os.write(file, connection.recv(size, socket.MSG_WAITALL))
    os.close(file)
    os.rename(draft, f"{folder}/{name}")


if __name__ == "__main__":
    if sys.argv[1] == "give":
        give(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        names = Path(sys.argv[3]).read_text().split()
        print(take(int(sys.argv[2]), names, Path(sys.argv[4])), flush=True)
