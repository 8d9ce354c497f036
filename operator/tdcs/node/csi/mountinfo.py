"""What is mounted where, as the kernel tells this process in /proc/self/mountinfo (proc_pid_mountinfo(5)).

Reading it touches no file system that is listed in it: it is the one safe question about a mount with a server that
hangs.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True, slots=True)
class MountLine:
    """One line of mountinfo.

    `device` is `major:minor` of the file system, `root` the folder of it that is seen at `point`, `options`
    the options of this mount (not of the file system), `source` what the mounter named as its source.
    """

    id: int
    device: str
    root: str
    point: str
    options: frozenset[str]
    filesystem: str
    source: str = ""

    @property
    def shows(self) -> tuple[str, str]:
        """What is seen at the mount point: equal for two mounts of the same folder of the same file
        system.
        """
        return self.device, self.root


def parse(*, lines: Iterable[str]) -> list[MountLine]:
    """Every mount, in the order of the kernel: of two at the same point the later one is on top."""
    return [_parse_line(line) for line in lines]


def read() -> list[MountLine]:
    with MOUNTINFO.open(encoding="utf-8", errors="surrogateescape") as lines:
        return parse(lines=lines)


def top(*, mounts: Iterable[MountLine], point: str) -> MountLine | None:
    """The mount that is seen at the path `point`, or None if nothing is mounted exactly there."""
    top_mount = None
    for mount in mounts:
        if mount.point == point:
            top_mount = mount
    return top_mount


def namespaces(proc: Path) -> Iterator[list[MountLine]]:
    """The mounts of each mount namespace that has a process; `proc` is the host's /proc.

    What is mounted after a container has begun reaches it only if its volumeMount has mountPropagation HostToContainer.
    kubelet does not tell the plugin which has; the containers' own lists of mounts do.
    """
    namespaces = set()
    for entry in os.scandir(proc):
        if not entry.name.isdigit():
            continue
        try:
            # One with a root of its own sees a part of its namespace only.
            namespace = os.readlink(f"{entry.path}/ns/mnt"), os.readlink(f"{entry.path}/root")
            if namespace in namespaces:
                continue
            with open(f"{entry.path}/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
                mounts = parse(lines=lines)
        except OSError:
            continue  # it has ended meanwhile
        namespaces.add(namespace)
        yield mounts


def _parse_line(line: str) -> MountLine:
    fields = line.rstrip("\n").split(" ")
    # Optional fields end with a lone dash; the type of the file system follows it.
    dash = fields.index("-", 6)
    return MountLine(
        id=int(fields[0]),
        device=fields[2],
        root=_unescape(fields[3]),
        point=_unescape(fields[4]),
        options=frozenset(fields[5].split(",")),
        filesystem=fields[dash + 1],
        source=_unescape(fields[dash + 2]),
    )


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
