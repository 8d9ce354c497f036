"""Become the given program, killed by the kernel as soon as the starter is gone.

Run as ``python -I -S die_with_parent.py STARTER_PID PROGRAM ARG...``. Standard
library only and no package around it: it stands between fork and exec of every
process that a test starts, so it must be small and quick.

A test run that is killed (SIGKILL, out of memory, a CI timeout) can clean up
nothing; PR_SET_PDEATHSIG (prctl(2)) makes the kernel do it. The signal comes
when the *thread* that started this process ends; see ``processes._starter``.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    starter, program = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    # The starter may have ended before prctl was called; then no signal would ever come.
    if os.getppid() != starter:
        sys.exit(f"the process that asked for {program[0]} (pid {starter}) is gone")
    try:
        os.execv(program[0], program)  # noqa: S606  no shell is meant
    except OSError as error:
        sys.exit(f"cannot run {program[0]}: {error.strerror}")


main()
