"""The settings that Alluxio runs with, each with its reason.

Three parts make one process: `site_properties` (one file for all roles of a cluster), `java_options` (per role), and
what only the process itself knows (host name, node), which the image's entrypoint takes from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

DATA_FOLDER = "/var/lib/alluxio"
"""What the master must not lose: its journal, and the empty folder that it mounts at its root."""

PROPERTIES_FILE = "/etc/alluxio/alluxio-site.properties"

_MIB = 1 << 20
_NONE: Mapping[str, str] = MappingProxyType({})


class AlluxioRole(StrEnum):
    """A kind of process, as the entrypoint calls it."""

    MASTER = "master"
    WORKER = "worker"
    FUSE = "fuse"


class Profile(StrEnum):
    """Which settings of reading are used. How processes are deployed, and their sizes, are the same in both."""

    TUNED = "Tuned"
    STOCK = "Stock"


@dataclass(frozen=True, kw_only=True)
class ProfileTier:
    """Where a worker keeps its blocks.

    Attributes:
        medium: `MEM`, `SSD` or `HDD`; a name for people and metrics, the path decides.
        path: A folder at the same place in the worker and in the FUSE client of its node, which opens the block files
            itself.
        capacity_bytes: How much of it the worker may fill.
    """

    medium: str
    path: str
    capacity_bytes: int


def site_properties(
    *,
    tier: ProfileTier,
    data_folder: str = DATA_FOLDER,
    overrides: Mapping[str, str] = _NONE,
    profile: Profile = Profile.TUNED,
    trusted: bool = False,
) -> dict[str, str]:
    """`alluxio-site.properties` of a cluster, for all of its processes.

    Args:
        tier: The workers' only tier.
        overrides: Any Alluxio property; wins over what is set here, but for where web pages are reached.
        profile: Stock leaves out everything that only makes reading faster or placement exact.
        trusted: Whether every process has a certificate; this cannot be overridden, because the others rely on it.
    """
    ours = {
        **_MASTER,
        **_WORKER,
        **_NEEDED,
        **(_CLIENT if profile is Profile.TUNED else _NONE),
        "alluxio.master.journal.folder": f"{data_folder}/journal",
        # Datasets are mounted below the root, which is an empty folder of the master's.
        "alluxio.master.mount.table.root.ufs": f"{data_folder}/root",
        "alluxio.worker.tieredstore.levels": "1",
        "alluxio.worker.tieredstore.level0.alias": tier.medium,
        "alluxio.worker.tieredstore.level0.dirs.mediumtype": tier.medium,
        "alluxio.worker.tieredstore.level0.dirs.path": tier.path,
        "alluxio.worker.tieredstore.level0.dirs.quota": f"{tier.capacity_bytes}B",
    }
    fixed = {**_LOOPBACK, **(_TRUST if trusted else _NONE)}
    return dict(sorted((ours | dict(overrides) | fixed).items()))


_LOOPBACK = {
    # REST and web pages know neither certificates nor users, and show contents of files, keys and logs.
    "alluxio.master.web.bind.host": "127.0.0.1",
    "alluxio.worker.web.bind.host": "127.0.0.1",
}


_TRUST = {
    # Both ends of every RPC show a certificate, and each caller does what its role may (deploy/local/alluxio/names).
    "alluxio.network.tls.enabled": "true",
    "alluxio.network.tls.ssl.context.provider.classname": "io.tdcs.trust.MutualTls",
}

_MASTER = {
    # A journal on a plain folder: one master on one volume needs no quorum.
    "alluxio.master.journal.type": "UFS",
    # All metadata on the heap. The default keeps a RocksDB of 100 MB and more for it; both keys are needed, the general
    # one is ignored.
    "alluxio.master.metastore.inode": "HEAP",
    "alluxio.master.metastore.block": "HEAP",
    # A dead worker's copies must leave the map soon: the default is 5 minutes, looked at every 10 s.
    "alluxio.master.worker.timeout": "10s",
    "alluxio.master.lost.worker.detection.interval": "2s",
    # 500 threads by default, each with its stack; the queue in front of them is unbounded, so few are enough.
    "alluxio.master.rpc.executor.core.pool.size": "32",
    # An outside address would be asked for the newest version.
    "alluxio.master.update.check.enabled": "false",
    "alluxio.web.ui.enabled": "false",
    "alluxio.logger.type": "Console",
    # A claimed user name would be believed anyway. Without certificates whoever reaches the ports can read everything:
    # the chart's NetworkPolicy alone guards them then, and only where the network plugin enforces it.
    "alluxio.security.authentication.type": "NOSASL",
    "alluxio.security.authorization.permission.enabled": "false",
    # A user id without a name in /etc/passwd cannot log in otherwise.
    "alluxio.security.login.username": "root",
}

_WORKER = {
    # When the master dies while a worker registers, this waits for an answer for twice this time, and is lost so
    # long: 20 minutes by default. A master answers each batch of blocks: they are small enough for a busy one.
    "alluxio.worker.register.stream.response.timeout": "20s",
    "alluxio.worker.register.stream.batch.size": "100000",
    # Pooled source streams once gave blocks of the right length with wrong bytes (Alluxio issue 18753).
    "alluxio.worker.ufs.instream.cache.enabled": "false",
    # Reads from the source at a time; three for each processor by default. Every small file costs a connection and a
    # request, so the link stays idle unless many are under way. Below the 40 connections of an S3 client.
    "alluxio.underfs.io.threads": "32",
    "alluxio.worker.rpc.executor.core.pool.size": "32",
    # Block files are readable and writable by everyone; their folder must not be.
    "alluxio.worker.data.folder.permissions": "rwxr-x---",
}

_NEEDED = {
    # Otherwise one symbolic link that leads nowhere, or out of the folder that the master sees, ends the listing of a
    # shared folder, and all files next to it are missing.
    "alluxio.underfs.local.skip.broken.symlinks": "true",
    # The library of this version is the one that Debian has.
    "alluxio.fuse.jnifuse.libfuse.version": "3",
}

_CLIENT = {
    # Bytes stay where the placement put them: a reader of another worker's block does not copy it.
    "alluxio.user.file.passive.cache.enabled": "false",
    # What is cached by reading goes to the reader's node, unless that would push out other blocks.
    "alluxio.user.ufs.block.read.location.policy": "alluxio.client.block.policy.LocalFirstAvoidEvictionPolicy",
    "alluxio.user.block.avoid.eviction.policy.reserved.size.bytes": "64MB",
    # A local block is read as a file, without the worker.
    "alluxio.user.short.circuit.enabled": "true",
    "alluxio.user.short.circuit.preferred": "true",
    # A cached entry also holds where the file's blocks were: a file that was looked at before it was loaded would be
    # read from its source until the entry expires, however many workers hold it by then.
    "alluxio.user.metadata.cache.enabled": "false",
    # A client that starts before the first worker would be without one for 2 minutes.
    "alluxio.user.worker.list.refresh.interval": "15s",
    # How soon clients honour the settings of a path (`set_path_properties`); 1 minute by default.
    "alluxio.user.conf.sync.interval": "5s",
    # Otherwise every open is a write to the master's journal.
    "alluxio.user.update.file.accesstime.disabled": "true",
    "alluxio.user.metrics.collection.enabled": "false",
    # Translations of paths are kept; the default of 500 is less than one directory of a dataset.
    "alluxio.fuse.cached.paths.max": "100000",
}


_OPENED = (
    *("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("java.nio", "java.io", "sun.nio.ch", "jdk.internal.loader"),
)

_DEFAULT_HEAP = {AlluxioRole.MASTER: 384 * _MIB, AlluxioRole.WORKER: 192 * _MIB, AlluxioRole.FUSE: 256 * _MIB}

# A worker takes direct buffers for readers, and one for each block that an Alluxio command lets it load. Near its limit
# it hangs for minutes, so this is not the place to save.
_DIRECT = {AlluxioRole.MASTER: 128 * _MIB, AlluxioRole.WORKER: 512 * _MIB, AlluxioRole.FUSE: 384 * _MIB}


def java_options(*, role: AlluxioRole, heap_bytes: int | None = None, processors: int = 2) -> list[str]:
    """JVM options for Java 17 (11 takes them as well).

    Args:
        heap_bytes: The largest heap. The defaults suit datasets of about 200,000 files and 4 jobs a node; a master
            needs about 1 KiB a file and 0.5 KiB a block.
        processors: How many the process may use; its thread pools and the collector's are sized by it. A container on a
            large node would size them for the node.
    """
    heap = heap_bytes or _DEFAULT_HEAP[role]
    collector = (
        [
            "-XX:+UseG1GC",
            f"-XX:ParallelGCThreads={processors}",
            f"-XX:ConcGCThreads={max(1, processors // 4)}",
        ]
        if processors > 2
        else ["-XX:+UseSerialGC"]  # the least memory and threads; pauses of a heap this small are short
    )
    # Compiling hot code a second time took half of all processor time in a worker's first minutes. With few processors
    # it would take it from the load that everybody waits for. A FUSE client has nothing to do then, and reads all day.
    few = processors <= 2 and role is not AlluxioRole.FUSE
    compiler = ["-XX:TieredStopAtLevel=1"] if few else [f"-XX:CICompilerCount={max(2, processors // 4)}"]
    return [
        f"-Xmx{heap // _MIB}m",
        f"-XX:MaxDirectMemorySize={_DIRECT[role] // _MIB}m",
        f"-XX:ActiveProcessorCount={processors}",
        *collector,
        *compiler,
        *(_LOADING if role is AlluxioRole.WORKER else ()),
        # Better a restart than a process that answers nothing.
        "-XX:+ExitOnOutOfMemoryError",
        # IPv4 or IPv6, as the pod has addresses; of a name with both, the one that the system would take.
        "-Djava.net.preferIPv6Addresses=system",
        # Pods change their addresses.
        "-Dsun.net.inetaddr.ttl=5",
        "-Dorg.apache.ratis.thirdparty.io.netty.allocator.useCacheForAllThreads=false",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    ]


_LOADING = (
    # For whoever loads by Alluxio's own commands: after this time (30 s by default) a worker gives up a block that it
    # loads, and gives the buffer that the source is still read into to the next block, which gets wrong bytes of the
    # right length. So it must be longer than any read; the S3 client ends one that hangs by itself. Workers only: it is
    # also how long a dead master's connection is kept.
    "-Dalluxio.user.network.rpc.keepalive.timeout=5min",
)


_OVERHEAD = 192 * _MIB
"""What a JVM of this size takes besides heap and direct memory: classes, compiled code, stacks."""

_SIZE = re.compile(r"-(?:Xmx|XX:MaxDirectMemorySize=)(\d+)([kKmMgG]?)")
_UNITS = {"": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30}


def memory_bytes(options: Sequence[str]) -> int:
    """What a JVM with these options may take: the last heap size, the last limit of direct memory, and the rest.

    Without a limit of its own, direct memory may grow as large as the heap.
    """
    sizes = _sizes(options)
    heap = sizes.get("-Xmx", 0)
    return heap + sizes.get("-XX:", heap) + _OVERHEAD


def heap_bytes(options: Sequence[str]) -> int:
    """The largest heap of a JVM with these options; 0 when none says."""
    return _sizes(options).get("-Xmx", 0)


def _sizes(options: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for option in options:
        if size := _SIZE.fullmatch(option):
            sizes[option[:4]] = int(size[1]) * _UNITS[size[2].lower()]
    return sizes


_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
)


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in sorted(properties.items()))


def _escaped(text: str) -> str:
    body = text.translate(_ESCAPES)
    return body.replace(" ", "\\ ", 1) if body.startswith(" ") else body
