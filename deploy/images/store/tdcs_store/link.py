"""The agent that shapes the pod's link: the only process of the pod with a privilege (NET_ADMIN).

It keeps nothing and takes no orders over the network. It reads the wanted rates from a file that the control
server writes, makes the kernel agree, and tells on loopback what it did: ``GET /`` answers
``{"applied": {...}, "wireBytes": {...}, "link": "...", "error": null}``. Its own
restart does not reset the counters: what is set up already is taken over.
"""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import shaping
from .state import load_link

POLL_SECONDS = 0.1


class CommandError(RuntimeError):
    """A command of iproute2 failed."""


def run(command: shaping.Command) -> str:
    """The stdout of a command; raises :class:`CommandError` with its words and its stderr."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise CommandError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


class Agent:
    """Makes the kernel agree with the wanted rates; see :meth:`observe` for what it tells."""

    def __init__(self, *, link_file: Path, port: int) -> None:
        self._link_file = link_file
        self._port = port
        self._lock = threading.Lock()
        self._applied: shaping.Link | None = None
        self._error: str | None = None

    def step(self) -> None:
        """Read the wanted rates and apply them if they differ from what was applied last."""
        try:
            link = load_link(self._link_file)
            if link == self._applied:
                return
            self._setup()
            for command in shaping.change(link):
                run(command)
        except (CommandError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            if self._error != str(error):
                print(f"link: {error}", file=sys.stderr, flush=True)
            self._error = str(error)
            return
        with self._lock:
            self._applied, self._error = link, None
        print(f"link: {link}", flush=True)

    def observe(self) -> dict[str, Any]:
        """The rates that hold, the counters, and the error that keeps the wanted rates from holding."""
        with self._lock:
            applied, error = self._applied, self._error
        wire = None
        try:
            wire = asdict(shaping.wire_bytes(self._qdiscs()))
        except (CommandError, KeyError, subprocess.TimeoutExpired) as failure:
            error = error or str(failure)
        rates = None if applied is None else asdict(applied)
        return {"applied": rates, "wireBytes": wire, "link": _network_namespace(), "error": error}

    def _setup(self) -> None:
        if shaping.complete(self._qdiscs()):
            return
        for command in shaping.teardown():
            subprocess.run(
                command, capture_output=True, timeout=10, check=False
            )  # most have nothing to remove
        try:
            for command in shaping.setup(port=self._port):
                run(command)
        except CommandError:
            for command in shaping.teardown():
                subprocess.run(command, capture_output=True, timeout=10, check=False)
            raise

    def _qdiscs(self) -> dict[str, list[dict[str, Any]]]:
        devices = {link["ifname"].partition("@")[0] for link in json.loads(run(("ip", "-j", "link", "show")))}
        return {
            device: json.loads(run(("tc", "-s", "-j", "qdisc", "show", "dev", device)))
            for device in (shaping.DEVICE, shaping.INGRESS_DEVICE)
            if device in devices
        }


def _network_namespace() -> str:
    """Names this set of kernel counters: another pod has another network namespace, or another boot."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}/{os.environ.get('POD_UID', '')}"


def serve(*, link_file: Path, s3_port: int, listen: tuple[str, int]) -> None:
    """Run the agent until the process ends."""
    agent = Agent(link_file=link_file, port=s3_port)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(agent.observe()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(listen, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        agent.step()
        time.sleep(POLL_SECONDS)
