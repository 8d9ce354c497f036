"""An OCI runtime for machines that withhold capabilities: runc, asked only for what the machine may give.

``docker run --privileged`` asks for every capability it knows, and runc refuses the container if one of them is
not in the machine's bounding set (virtual machines and build environments often lack CAP_SYS_RESOURCE). This
program stands between the engine and runc and strikes those from the container's specification. It only takes
privileges away. Installed as a copy of its own: it imports nothing but the standard library.
"""

import json
import os
import sys
from collections.abc import Sequence

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *(
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
    ),
    *(
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
    ),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL"),
    *(
        "SETFCAP",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
        "WAKE_ALARM",
        "BLOCK_SUSPEND",
        "AUDIT_READ",
        "PERFMON",
    ),
    *("BPF", "CHECKPOINT_RESTORE"),
)
"""Names in the order of their numbers (linux/capability.h)."""


def missing(status: str) -> set[str]:
    """The capabilities that the bounding set in a ``/proc/PID/status`` lacks, as ``CAP_...``."""
    line = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    bounding = int(line.split()[1], 16)
    return {f"CAP_{name}" for bit, name in enumerate(CAPABILITIES) if not bounding >> bit & 1}


def without(specification: dict[str, object], dropped: set[str]) -> dict[str, object]:
    """A container's or a process's specification without some capabilities."""
    result = dict(specification)
    if isinstance(result.get("process"), dict):
        result["process"] = without(result["process"], dropped)  # type: ignore[arg-type]
    sets = result.get("capabilities")
    if isinstance(sets, dict):
        result["capabilities"] = {
            kind: [name for name in names if name not in dropped] for kind, names in sets.items()
        }
    return result


def specification_file(arguments: Sequence[str]) -> str:
    """The file that a call of runc reads a specification from; "" if it reads none."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        value = value if equals else following
        if name in {"--bundle", "-b"}:
            return f"{value}/config.json"
        if name in {"--process", "-p"}:
            return value
    return ""


def main() -> None:
    file = specification_file(sys.argv[1:])
    if file and os.path.isfile(file):
        with open("/proc/self/status") as status:
            dropped = missing(status.read())
        with open(file) as old:
            specification = json.load(old)
        limited = without(specification, dropped)
        if limited != specification:
            with open(f"{file}.limited", "w") as new:
                json.dump(limited, new)
            os.replace(f"{file}.limited", file)
    os.execvp("runc", ["runc", *sys.argv[1:]])  # noqa: S606 - no shell is wanted here


if __name__ == "__main__":
    main()
