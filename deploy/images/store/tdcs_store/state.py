"""What outlives the pod: the wanted rates and the wire counters, as small JSON files on the store's volume."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .shaping import Link, WireBytes


def load_link(path: Path) -> Link:
    """The wanted rates; unlimited when none were ever set. Raises ValueError on a broken file."""
    document = _load(path)
    return Link() if document is None else Link(egress=document["egress"], ingress=document["ingress"])


def save_link(path: Path, link: Link) -> None:
    """Write the wanted rates; the agent sees them at its next look."""
    write_json(path, asdict(link))


@dataclass(frozen=True, kw_only=True)
class Odometer:
    """A counter that goes on where the kernel's, which starts at zero with every pod, was last seen.

    ``link`` names the set of kernel counters that ``seen`` was read from.
    """

    total: WireBytes = field(default_factory=WireBytes)
    seen: WireBytes = field(default_factory=WireBytes)
    link: str = ""

    def advanced(self, now: WireBytes, *, link: str) -> "Odometer":
        """After a look at the kernel's counters. Other ones than last time, or smaller ones, began at zero."""
        again = link != self.link or now.egress < self.seen.egress or now.ingress < self.seen.ingress
        before = WireBytes() if again else self.seen
        return Odometer(
            total=WireBytes(
                egress=self.total.egress + now.egress - before.egress,
                ingress=self.total.ingress + now.ingress - before.ingress,
            ),
            seen=now,
            link=link,
        )


def load_odometer(path: Path) -> Odometer:
    """The counter as it was kept; zero when there is none. Raises ValueError on a broken file."""
    document = _load(path)
    if document is None:
        return Odometer()
    return Odometer(
        total=WireBytes(**document["total"]), seen=WireBytes(**document["seen"]), link=document["link"]
    )


def save_odometer(path: Path, odometer: Odometer) -> None:
    """Keep the counter."""
    write_json(path, asdict(odometer))


def write_json(path: Path, value: object) -> None:
    """Replace a file in one step: a reader sees the old text or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(value, file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _load(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        document: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}): delete it to start again") from error
    return document
