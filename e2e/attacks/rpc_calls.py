"""What an intruder would call of the cache: `python rpc_calls.py MASTER WORKER`, in the image with the program `tdcs`.

First once while the network is closed; then again and again until a port answers, and then as each caller. A line a
call: phase, caller, call, gRPC's status and its text, as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tdcs.alluxio.rpc import BLOCK_WORKER, CONFIGURATION, FILE_SYSTEM, method_types

MASTER_WORKER = "alluxio.grpc.file.FileSystemMasterWorkerService"
BLOCK = 123_456_789
SOURCE: Mapping[str, Any] = {
    "ufs_path": "/etc/shadow",
    "offset_in_file": 0,
    "block_size": 12,
    "maxUfsReadConcurrency": 9,
    "mountId": 1,
    "no_cache": True,
}
READ = {"offset": 0, "length": 12, "chunk_size": 1 << 20}
CALLS: Mapping[str, tuple[str, str, str, Mapping[str, Any]]] = {
    "list mounts": ("master", FILE_SYSTEM, "GetMountTable", {}),
    "list files": ("master", FILE_SYSTEM, "ListStatusPartial", {"path": "/", "options": {"batchSize": 10}}),
    "keys of a source": ("master", MASTER_WORKER, "GetUfsInfo", {"mountId": 1}),
    "free": ("master", FILE_SYSTEM, "Free", {"path": "/none", "options": {}}),
    "mount /etc": (
        "master",
        FILE_SYSTEM,
        "Mount",
        {"alluxioPath": "/evil", "ufsPath": "/etc", "options": {}},
    ),
    "configure": (
        "master",
        CONFIGURATION,
        "UpdateConfiguration",
        {"properties": {"alluxio.user.app.id": "x"}},
    ),
    "read a block": ("worker", BLOCK_WORKER, "ReadBlock", {"block_id": BLOCK, **READ}),
    "read /etc/shadow": (
        *("worker", BLOCK_WORKER, "ReadBlock"),
        {"block_id": BLOCK | 1 << 62, **READ, "open_ufs_block_options": SOURCE},
    ),
    "poison a block": ("worker", BLOCK_WORKER, "WriteBlock", {"command": {"id": BLOCK, "tier": 0}}),
    "remove a block": ("worker", BLOCK_WORKER, "RemoveBlock", {"block_id": BLOCK}),
}
"""What for: at whom, service, method, request."""
STREAMS = ("ReadBlock", "WriteBlock")
CERTIFICATES = Path("/certificates")
"""A folder of a Secret for each role."""
ROLES = ("reader", "monitor")
SECONDS = 8.0
OPEN_SECONDS = 900.0


def channel(target: str, caller: str) -> grpc.Channel:
    """To a process, with the certificate of a role, or with none, or without TLS."""
    if caller == "plain":
        return grpc.insecure_channel(target)
    authorities = (CERTIFICATES / ROLES[0] / "ca.crt").read_bytes()
    if caller == "no certificate":
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(authorities))
    folder = CERTIFICATES / caller
    key, certificate = (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(authorities, key, certificate))


def answer(
    target: str, caller: str, service: str, method: str, request: Mapping[str, Any]
) -> tuple[str, str]:
    """How a call ends: gRPC's status and what it says."""
    request_type, response_type = method_types(service, method)
    path, done = f"/{service}/{method}", threading.Event()
    codecs: dict[str, Any] = {
        "request_serializer": lambda message: message.SerializeToString(),
        "response_deserializer": response_type.FromString,
    }

    def one() -> Iterator[Any]:
        # What is written to a call that was refused meanwhile hides the refusal: so a moment later.
        done.wait(1.0)
        yield request_type(**request)
        done.wait(SECONDS)

    with channel(target, caller) as to:
        try:
            if method in STREAMS:
                next(iter(to.stream_stream(path, **codecs)(one(), timeout=SECONDS)))
            else:
                to.unary_unary(path, **codecs)(request_type(**request), timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""
        finally:
            done.set()
    return "OK", ""


def attempt(phase: str, caller: str, targets: Mapping[str, str]) -> None:
    """Make all calls as one caller."""

    def call(name: str) -> str:
        at, service, method, request = CALLS[name]
        code, text = answer(targets[at], caller, service, method, request)
        return json.dumps({"phase": phase, "caller": caller, "call": name, "code": code, "text": text})

    with ThreadPoolExecutor(len(CALLS)) as pool:
        for line in pool.map(call, CALLS):
            print(line, flush=True)


def wait_open(targets: Mapping[str, str]) -> None:
    """Wait until all ports take a connection."""
    end = time.monotonic() + OPEN_SECONDS
    for target in targets.values():
        host, _, port = target.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1.0).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)


def main(master: str, worker: str) -> None:
    """All calls, in both phases."""
    targets = {"master": master, "worker": worker}
    attempt("closed", ROLES[0], targets)
    print(json.dumps({"phase": "wait"}), flush=True)
    wait_open(targets)
    for caller in ("plain", "no certificate", *ROLES):
        attempt("open", caller, targets)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
