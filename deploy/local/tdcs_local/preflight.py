"""What must be true of a machine before a cluster is made on it: facts, and the judgement of them.

The judgement is a pure function, so each sentence a user may get is tested without breaking a machine.
"""

import os
import shutil
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tdcs_local import docker, host, programs
from tdcs_local.containers import node_image
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, kubeconfig
from tdcs_local.paths import CHECKOUT, KUBECONFIG, cache_root

GIB = 1 << 30
COLD_DISK = 25 * GIB
"""For compiling Kubernetes (9 GB of Go's caches), node images and the nodes' own copies of them, all on one disk, and
what the demo adds. The README says it, too."""
WARM_DISK = 6 * GIB
"""For the nodes' copies of images, an archive of each image and some log, where all programs are built."""
LEAST_MEMORY = 4 * GIB
GOOD_MEMORY = 7 * GIB
OLDEST_ENGINE = (20, 10)
MEANT_FOR = ("docker", "dockerd", "iptables", "mmdebstrap")


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A place that fills, and the bytes left there."""

    purpose: str
    path: str
    free: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was seen. ``engine`` is "answers", "denied" or "absent"; memory and disks are in bytes."""

    root: bool
    apt: bool
    lacking_packages: Sequence[str]
    engine: str
    engine_version: tuple[int, ...]
    fuse: bool
    disks: Sequence[Disk]
    memory: int
    cold: bool
    go: bool
    port: int | None
    port_taken: bool
    foreign_contexts: Sequence[str]
    kubeconfig_variable: str = ""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that a user should know; a blocking one ends ``up`` before it starts."""

    what: str
    remedy: str
    blocking: bool = True

    def __str__(self) -> str:
        return f"{'error' if self.blocking else 'note'}: {self.what}\n  try: {self.remedy}"


def problems(facts: Facts) -> list[Problem]:
    """All that is wrong, what blocks first."""
    problems = [*_engine(facts), *_disk(facts), *_rest(facts)]
    return sorted(problems, key=lambda problem: not problem.blocking)


def described(facts: Facts) -> list[str]:
    """What was looked at, a line each, whatever it means."""
    version = ".".join(map(str, facts.engine_version))
    needed = COLD_DISK if facts.cold else WARM_DISK
    engine = f"{facts.engine}, version {version}" if version else facts.engine
    oldest = ".".join(map(str, OLDEST_ENGINE))
    lines = [
        f"container engine: {engine} ({oldest} or newer; root can install and start one)",
        f"memory: {facts.memory / GIB:.1f} GiB (at least {LEAST_MEMORY // GIB}; {GOOD_MEMORY // GIB} are good)",
        *(
            f"disk for {disk.purpose}: {disk.free / GIB:.1f} GiB left in {disk.path} (at least {needed // GIB})"
            for disk in facts.disks
        ),
        f"/dev/fuse: {'there' if facts.fuse else 'not there'}",
        f"packages: {'lacks ' + ', '.join(facts.lacking_packages) if facts.lacking_packages else 'all there'}",
        f"Go: {'there' if facts.go else 'not there'}, and {'needed' if facts.cold else 'not needed: all is built'}",
    ]
    if facts.port is not None:
        lines.append(f"port {facts.port}: {'taken' if facts.port_taken else 'free'}")
    return lines


def require(facts: Facts) -> None:
    """Raises :class:`LocalError` with everything that blocks."""
    blocking = [problem for problem in problems(facts) if problem.blocking]
    if blocking:
        raise LocalError(
            what=f"the cluster cannot be made on this machine as it is; nothing was changed\n{_lines(blocking)}"
        )


def facts() -> Facts:
    """Looks at this machine; changes nothing."""
    engine = host.look_at_engine()
    cold = not _built()
    port = cluster.api_port()
    try:
        strange = kubeconfig.foreign_contexts(KUBECONFIG.read_text())
    except OSError:
        strange = []
    return Facts(
        root=os.geteuid() == 0,
        apt=shutil.which("apt-get") is not None,
        lacking_packages=host.missing_packages(MEANT_FOR),
        engine=engine.state,
        engine_version=programs.version_tuple(engine.version),
        fuse=Path("/dev/fuse").exists(),
        disks=[
            _disk_of("programs (TDCS_CACHE)", cache_root()),
            _disk_of("containers", _engine_root(engine.state)),
            _disk_of("the checkout", CHECKOUT),
        ],
        memory=psutil.virtual_memory().total,
        cold=cold,
        go=shutil.which("go") is not None,
        port=port,
        port_taken=port is not None and _taken(port) and not _is_own(engine.state),
        foreign_contexts=strange,
        kubeconfig_variable=os.environ.get("KUBECONFIG", ""),
    )


def _engine(facts: Facts) -> list[Problem]:
    problems: list[Problem] = []
    if facts.engine == "denied":
        problems.append(
            Problem(
                what="docker runs, but your user may not use it",
                remedy="sudo usermod -aG docker $USER, then log in again; or run as root",
            )
        )
    elif facts.engine == "absent" and not facts.root:
        problems.append(
            Problem(
                what="no container engine runs, and only root can start one",
                remedy="sudo systemctl start docker (after sudo apt-get install docker.io), or run as root",
            )
        )
    elif facts.engine == "answers" and facts.engine_version and facts.engine_version < OLDEST_ENGINE:
        version = ".".join(map(str, facts.engine_version))
        problems.append(
            Problem(what=f"docker {version} is too old for kind", remedy="install docker 20.10 or newer")
        )
    if facts.lacking_packages and not (facts.root and facts.apt):
        names = " ".join(facts.lacking_packages)
        problems.append(
            Problem(
                what=f"this machine lacks {names}, and only root can install packages",
                remedy=f"sudo apt-get install {names} (or your system's packages of the same programs)",
            )
        )
    return problems


def _disk(facts: Facts) -> list[Problem]:
    needed = COLD_DISK if facts.cold else WARM_DISK
    return [
        Problem(
            what=f"{disk.path} has {disk.free / GIB:.1f} GiB left for {disk.purpose}; {needed / GIB:.0f} are needed",
            remedy="free some space there (docker system df shows what images take), or set TDCS_CACHE to a "
            "folder on another disk"
            if "TDCS_CACHE" in disk.purpose
            else "free some space there (docker system df shows what images take)",
        )
        for disk in facts.disks
        if disk.free < needed
    ]


def _rest(facts: Facts) -> list[Problem]:
    problems: list[Problem] = []
    if not facts.fuse:
        problems.append(
            Problem(
                what="there is no /dev/fuse, and datasets are read through FUSE",
                remedy="sudo modprobe fuse (in a container: give it the device, --device /dev/fuse)",
            )
        )
    if facts.memory < LEAST_MEMORY:
        problems.append(
            Problem(
                what=f"this machine has {facts.memory / GIB:.1f} GiB of memory; the cluster needs 4",
                remedy="use a larger machine",
            )
        )
    elif facts.memory < GOOD_MEMORY:
        problems.append(
            Problem(
                what=f"with {facts.memory / GIB:.1f} GiB of memory the demonstration will be slow or fail",
                remedy="8 GiB are enough for it",
                blocking=False,
            )
        )
    if facts.cold and not facts.go:
        problems.append(
            Problem(
                what="Go is not installed, and Kubernetes is built with it here",
                remedy=f"install Go {programs.OLDEST_GO_TEXT} or newer (https://go.dev/doc/install) and put it on PATH",
            )
        )
    if facts.port is not None and facts.port_taken:
        problems.append(
            Problem(
                what=f"port {facts.port} on 127.0.0.1 is taken, and {cluster.PORT_VARIABLE} asks for it",
                remedy=f"unset {cluster.PORT_VARIABLE} for a free port, or see who has it: ss -ltnp",
            )
        )
    if facts.foreign_contexts:
        problems.append(
            Problem(
                what=f"{KUBECONFIG} holds the access to another cluster ({', '.join(facts.foreign_contexts)})",
                remedy=f"move it away: mv {KUBECONFIG} {KUBECONFIG}.mine",
            )
        )
    if facts.kubeconfig_variable and Path(facts.kubeconfig_variable).absolute() != KUBECONFIG:
        problems.append(
            Problem(
                what=f"KUBECONFIG names {facts.kubeconfig_variable}: your kubectl talks to that, not to this "
                "cluster (our commands never look at it)",
                remedy=f"export KUBECONFIG={KUBECONFIG}",
                blocking=False,
            )
        )
    return problems


def _lines(problems: Iterable[Problem]) -> str:
    return "\n".join(f"- {problem.what}\n  try: {problem.remedy}" for problem in problems)


def _engine_root(engine: str) -> Path:
    if engine == "answers":
        return Path(str(docker.info().get("DockerRootDir", "/var/lib/docker")))
    return Path("/var/lib/docker")


def _built() -> bool:
    """Whether the large programs are in the cache, or a stock node image makes them needless."""
    return node_image.stock() is not None or programs.cached("kubernetes") is not None


def _disk_of(purpose: str, path: Path) -> Disk:
    existing = next(place for place in (path, *path.parents) if place.exists())
    return Disk(purpose=purpose, path=str(path), free=shutil.disk_usage(existing).free)


def _is_own(engine: str) -> bool:
    """Whether nodes of this name are there: then it is they who have the port."""
    return engine == "answers" and bool(cluster.nodes(cluster.name()))


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
