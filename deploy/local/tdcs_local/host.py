"""Prepares the machine: programs, kernel limits, the container engine. Undoes what it started."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tdcs_local import cache, docker, limited_runc, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import cache_root, log_file
from tdcs_local.progress import Reporter

PACKAGES = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "fusermount3": "fuse3",
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "npm": "npm",
    "node": "nodejs",
    "asciinema": "asciinema",
    "chromium": "chromium",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
"""The Debian package of each program that some part of the local tools runs."""

KERNEL_LIMITS = {"fs/inotify/max_user_instances": 8192, "fs/inotify/max_user_watches": 1_048_576}
"""What systemd, kubelet and containerd of four nodes need together; the kernel's default is for one system."""

ENGINE_LOCK = "engine-use"
ENGINE_START_SECONDS = 60.0
ENGINE_STOP_SECONDS = 40.0
SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def missing_packages(programs: Iterable[str]) -> list[str]:
    """The Debian packages of the programs that are not on this machine."""
    search = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_PATHS])
    return sorted({PACKAGES[program] for program in programs if shutil.which(program, path=search) is None})


def require_programs(*programs: str, reporter: Reporter) -> None:
    """Installs the packages of missing programs (as root), or says what to install."""
    require_packages(missing_packages(programs), reporter=reporter)


def require_packages(packages: Sequence[str], *, reporter: Reporter) -> None:
    """Installs Debian packages (as root), or says what to install."""
    if not packages:
        return
    names = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LocalError(
            what=f"this machine lacks: {names}",
            why="they can be installed here only by root with apt-get",
            remedy=f"sudo apt-get install {names} (or your system's packages of these programs)",
        )
    with cache.locked("apt"), reporter.step(f"install {names}"):
        log = log_file("apt")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        failure = f"installing {names} failed"
        remedy = "see that `apt-get update` works on this machine"
        waiting = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=5")
        update = ["apt-get", "update", *waiting]
        shell.run(update, what=failure, log=log, env=quiet, remedy=remedy, fetches=True)
        install = ["apt-get", "install", "-y", "--no-install-recommends", *waiting, *packages]
        # a package may want to start a service where nothing starts services: that is no failure of the package
        try:
            shell.run(install, what=failure, log=log, env=quiet, remedy=remedy)
        except LocalError:
            # an installation that was killed leaves packages half configured, and nothing else can be installed
            shell.run(["dpkg", "--configure", "-a"], what=failure, log=log, env=quiet, remedy=remedy)
            shell.run(install, what=failure, log=log, env=quiet, remedy=remedy, fetches=True)


def raise_limits(*, reporter: Reporter) -> None:
    """Raises the kernel's limits that nodes would run into; they are never lowered."""
    for name, least in KERNEL_LIMITS.items():
        file = Path("/proc/sys") / name
        if not file.exists() or int(file.read_text()) >= least:
            continue
        setting = f"{name.replace('/', '.')}={least}"
        try:
            file.write_text(str(least))
        except OSError as error:
            raise LocalError(
                what=f"the kernel's limit {file} is too low for four nodes",
                why=str(error),
                remedy=f"sudo sysctl -w {setting}",
            ) from error
        reporter.say(f"kernel limit raised: {setting}")
    if os.geteuid() == 0:
        Path("/lib/modules").mkdir(exist_ok=True)  # kind mounts it into nodes; some machines have no modules


@dataclass(frozen=True, kw_only=True)
class Engine:
    """``state``: "answers", "denied" (it does not let this user in) or "absent"; ``version`` if it answers."""

    state: str
    version: str = ""


def look_at_engine() -> Engine:
    """Asks the container engine for its version."""
    try:
        version = shell.capture(["docker", "version", "--format", "{{.Server.Version}}"], timeout=20)
    except LocalError as error:
        return Engine(state="denied" if "permission denied" in error.why.lower() else "absent")
    return Engine(state="answers", version=version)


def engine_answers() -> bool:
    """Whether a container engine runs and lets this user in."""
    return look_at_engine().state == "answers"


@contextmanager
def engine_in_use(*, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Keeps every other process's :func:`stop_engine` off the engine, also between two uses of it."""
    with cache.shared(ENGINE_LOCK, on_wait=on_wait):
        yield


def start_engine(*, reporter: Reporter) -> None:
    """Makes the container engine answer: starts dockerd where none runs."""
    if engine_answers():
        return
    if os.geteuid() != 0:
        docker.require()  # explains what a user may do: rights, or having the engine started
    require_programs("docker", "dockerd", "iptables", reporter=reporter)
    if engine_answers():  # where systemd runs, the package has started it
        return
    with cache.locked("engine"), reporter.step("start the container engine"):
        if not engine_answers():
            _launch_engine()


def stop_engine(*, reporter: Reporter) -> None:
    """Stops dockerd if it was started here, no container is left in it and no other process needs it now."""
    process = own_engine()
    if process is None:
        return
    with cache.exclusive(ENGINE_LOCK) as alone:
        if not alone:
            reporter.say("the container engine stays: another process makes a cluster or images with it")
            return
        running = docker.containers(every=False)
        if running:
            reporter.say(f"the container engine stays: it runs {', '.join(running)}")
            return
        with cache.locked("engine"), reporter.step("stop the container engine"):
            _end(process)


def _end(process: psutil.Process) -> None:
    shell.succeeds(["docker", "network", "rm", "kind"])  # kind's own, empty now; another may not be
    process.terminate()
    try:
        process.wait(ENGINE_STOP_SECONDS)
    except psutil.TimeoutExpired as error:
        raise LocalError(
            what=f"dockerd (process {process.pid}) did not stop within {ENGINE_STOP_SECONDS:.0f} s",
            log=_folder() / "dockerd.log",
            remedy="look at its log, then stop it by hand",
        ) from error


def own_engine() -> psutil.Process | None:
    """The dockerd that this tool started, from whatever checkout; it is known by its pid file."""
    pidfile = _folder() / "dockerd.pid"
    try:
        process = psutil.Process(int(pidfile.read_text()))
        return process if f"--pidfile={pidfile}" in process.cmdline() else None
    except (OSError, ValueError, psutil.Error):
        return None


def lacks_capabilities() -> set[str]:
    """Capabilities that not even root has here."""
    return limited_runc.missing(Path("/proc/self/status").read_text())


def _launch_engine() -> None:
    folder = _folder()
    cache.make_folder(folder)
    log = folder / "dockerd.log"
    command = ["dockerd", f"--pidfile={folder / 'dockerd.pid'}"]
    if lacks_capabilities():
        runtime = _install_runtime(folder)
        command += ["--add-runtime", f"limited={runtime}", "--default-runtime", "limited"]
    path = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_PATHS])
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it outlives this process
            cwd="/",
            env={**os.environ, "PATH": path},
        )
    deadline = time.monotonic() + ENGINE_START_SECONDS
    while not engine_answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise LocalError(
                what="the container engine did not start",
                why=shell.tail(log),
                log=log,
                remedy="read the log; another engine's leftovers (/var/run/docker.pid, iptables) are the usual cause",
            )
        time.sleep(0.2)


def _install_runtime(folder: Path) -> Path:
    """A copy outside the checkout, with an interpreter that outlives the checkout's environment."""
    runtime = folder / "limited-runc"
    interpreter = os.path.realpath(sys.executable)
    source = Path(limited_runc.__file__).read_text()
    fresh = runtime.with_suffix(f".{os.getpid()}")
    fresh.write_text(f"#!{interpreter} -ISB\n{source}")
    fresh.chmod(0o755)
    fresh.replace(runtime)
    return runtime


def _folder() -> Path:
    return cache_root() / "host"
