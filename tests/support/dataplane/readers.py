"""A remote-read client on loopback: holder and reader as processes, and agents' block services that have the blocks."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil
from tests.support.dataplane import giver_process
from tests.support.dataplane.agents import Version, fill, folder_version, put_block
from tests.support.programs.ports import free_ports, listens_at
from tests.support.programs.processes import Process

from tdcs.api import names
from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.engine.reader_files import Registration, VersionNumbers
from tdcs.listening import at
from tdcs.model.agent_state import ALL_SLOTS, SourceAccess
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.manifest import Manifest
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.reader import session
from tdcs.node.reader.registration import ReaderFolder, write_atomically

CLUSTER = "default"


def listens(address: str) -> bool:
    """Whether a process listens at an address."""
    host, _, port = address.rpartition(":")
    return listens_at(int(port), host=host.strip("[]"))


class Giver:
    """A process that gives blocks."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        source: SourceAccess | None = None,
        trust: Path | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.name = name
        access = msgspec.json.encode(source).decode() if source is not None else ""
        self.tier = folder / name
        (port,) = free_ports(1)
        self.address = at(host, port)
        (self.tier / "agent/spool").mkdir(parents=True)
        self.process = Process(
            name=name,
            argv=[
                *(sys.executable, "-m", giver_process.__name__),
                *(str(self.tier), str(port), access, str(trust or ""), host),
            ],
            log=folder / f"{name}.log",
            env={**os.environ, "PYTHONPATH": ":".join(["operator", "deploy/local", "."])},
            ready=lambda: listens(self.address),
        )

    def put(self, manifest: Manifest, files: Path, *, only: Sequence[int] | None = None) -> None:
        """Have the blocks of these files (their numbers; all by default)."""
        disk = Disk(self.tier)
        for file in range(len(manifest)) if only is None else only:
            content, begin = (files / os.fsdecode(manifest.file_path(file))).read_bytes(), 0
            for block in manifest.blocks_of(file):
                end = begin + int(manifest.block_lengths[block])
                put_block(disk, manifest, block, content[begin:end])
                begin = end


_LOADED: Final = """
import encodings.ascii, encodings.idna, encodings.latin_1, sys
from tdcs.node.reader import reader_command
from tdcs.node.reader import child_process, monitor, reserve, supervisor
"""
"""All that is imported later: the user need not be able to read the interpreter's files here, as in an image."""

HOLDER: Final = f"{_LOADED}\nreader_command.command()"
"""`tdcs reader`, for a holder with `--user`."""

AS_USER: Final = f"{_LOADED}\nchild_process.give_up_root(int(sys.argv.pop(1)))\nreader_command.command()"
"""`tdcs reader` as the user whose number is its first argument."""


class ReaderNode:
    """A node with a holder and a reader, which run as in the chart: the reader, and what serves in its place, as a user
    that is not root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.own = ReaderFolder(folder / "reader")
        self.own.prepare()
        self._numbers: Final = VersionNumbers(self.own.root, registered=self.own.registered)
        self.tier = folder / "local"
        (self.tier / "agent/spool").mkdir(parents=True)
        self.health_port, self.port = free_ports(2)
        where = ("--folder", str(self.own.root))
        self.holder = Process(
            name="holder",
            argv=[sys.executable, "-c", HOLDER, "hold", f"--user={names.READER_USER}", *where],
            log=folder / "holder.log",
            ready=lambda: session.is_mounted(point=str(self.own.point)),
        )
        self.reader = self.make_reader()

    def make_reader(self, *more: str) -> Process:
        """A reader that is not started, with more options."""
        where = ("--folder", str(self.own.root), "--node", "here")
        ports = (f"--health-port={self.health_port}", f"--metrics-port={self.port}")
        return Process(
            name="reader",
            argv=[sys.executable, "-c", AS_USER, str(names.READER_USER), "run", *where, *ports, *more],
            log=self.folder / "reader.log",
            ready=self.serves,
        )

    def serves(self) -> bool:
        """Whether the reader says that it is healthy."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all versions."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(f"{name}{{")
            and all(f'{key}="{value}"' in line for key, value in labels.items())
        )

    def workers(self) -> list[int]:
        """Processes of the reader, without its first one."""
        return [child.pid for child in psutil.Process(self.reader.pid).children()]

    def register(self, version: Version, *, tables: HolderTable | None = None) -> Path:
        """Register a version, as the node plugin does; its folder in the file system."""
        digest = version.manifest.digest
        name = f"{CLUSTER}.{digest}"
        if tables is not None:
            self.table(version, tables)
        file = Registration(
            cluster=CLUSTER,
            path=version.manifest.path,
            manifest=str(version.folder.file(digest)),
            tiers=(str(self.tier),),
        )
        self._numbers.register(name, file)
        return self.own.point / name

    def table(self, version: Version, table: HolderTable) -> None:
        """Say who holds what, as the monitor does when the operator said it."""
        name = f"{CLUSTER}.{version.manifest.digest}"
        write_atomically(self.own.holders / name, msgspec.msgpack.encode(table))

    def start(self) -> None:
        """Mount and serve."""
        self.holder.start()
        self.reader.start()

    def close(self) -> None:
        """End everything, and unmount."""
        self.reader.kill()
        self.holder.kill()
        session.unmount(point=str(self.own.point))


def holder_of(giver: Giver, *, slots: bytes = ALL_SLOTS, reads_source: bool = False) -> Holder:
    """A giver as the operator names it."""
    return Holder(
        node=giver.name, address=giver.address, complete=slots, present=slots, reads_source=reads_source
    )


HERE: Final = Holder(node="here", address="127.0.0.1:1", present=ALL_SLOTS)
"""The agent of the reader's own node, which may have some of everything; it is not asked."""


def table_of(*holders: Holder) -> HolderTable:
    """A table of these holders."""
    return HolderTable(holders=holders, revision=1)


@contextmanager
def reader_node() -> Iterator[ReaderNode]:
    """A node of a reader in a temporary folder; not started yet."""
    folder = Path(tempfile.mkdtemp(prefix="tdcs-reader-", dir="/var/tmp"))
    node = ReaderNode(folder)
    try:
        yield node
    finally:
        node.close()
        shutil.rmtree(folder, ignore_errors=True)


def small_version(folder: Path, files: Mapping[str, bytes], *, cut: Cut = WHOLE_BLOCKS) -> Version:
    """Write files below a folder, and make a version of them."""
    return folder_version(fill(folder / "source", files), store=folder / "manifests", cut=cut)


def shown_from_elsewhere(
    node: ReaderNode, files: Mapping[str, bytes], *, cut: Cut = WHOLE_BLOCKS, host: str = "127.0.0.1"
) -> tuple[Giver, Path]:
    """Register a version of files that one other node has; the process there, and the folder that shows the version."""
    version = small_version(node.folder, files, cut=cut)
    giver = Giver(node.folder, "giver", host=host)
    giver.put(version.manifest, node.folder / "source")
    giver.process.start()
    return giver, node.register(version, tables=table_of(holder_of(giver)))


def drop_page_cache() -> None:
    """Have the kernel forget what it read."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
