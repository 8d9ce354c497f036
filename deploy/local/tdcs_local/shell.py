"""Runs other programs: output into a log, failures as :class:`LocalError`, no orphans of a killed run."""

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tdcs_local.errors import LocalError

TAIL_LINES = 12
FETCH_PAUSES = (5.0, 20.0, 60.0)
"""Seconds between the tries of a command that fetches something, when what it fetches from failed for a moment."""
_MOMENTARY = re.compile(
    # What programs say of a network; a bare "timeout" or "503" may be a field or a line of what was refused.
    r"\btimed out\b|(i/o|tls handshake|request|gateway|read|connect(ion)?) time-?out|deadline exceeded"
    r"|connection (reset|refused|closed|broken)|temporary failure|temporarily|unexpected eof|: eof\b"
    r"|network is unreachable|no such host|could not resolve|transfer (failed|artifact)|hash sum mismatch"
    r"|\b(status|http(/[\d.]+)?|code|error)(:? code)?\W{0,3}(429|50[0234])\b|\b(429 too many|50[0234] [a-z]+)"
    r"|failed to fetch|unable to connect|premature end|no response|serviceunavailable",
    re.IGNORECASE,
)


def tail(log: Path, *, lines: int = TAIL_LINES) -> str:
    """The last lines of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def leashed(command: Sequence[str | Path]) -> list[str]:
    """The command such that the kernel ends it when this process dies, where ``setpriv`` exists."""
    words = [str(word) for word in command]
    return ["setpriv", "--pdeathsig", "KILL", "--", *words] if shutil.which("setpriv") else words


_CONTAIN = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--")


@functools.cache
def can_contain() -> bool:
    """Whether this process may give others namespaces of their own (root may, outside of tight containers)."""
    return succeeds([*_CONTAIN, "true"])


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    log: Path,
    remedy: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    timeout: float | None = None,
    contained: bool = False,
    fetches: bool = False,
) -> None:
    """Runs a command to its end with all output appended to ``log``.

    ``what`` is the sentence of a failure ("building kubernetes failed"); ``env`` is added to this process's own.
    A ``contained`` command has process and mount namespaces of its own where that is possible: when this process
    is killed, all that the command started ends, and what it mounted is gone.
    One that ``fetches`` from elsewhere is run again when what it says shows that it was not answered for a moment.
    Raises :class:`LocalError` when the program is missing, fails or takes over ``timeout`` seconds.
    """
    for pause in FETCH_PAUSES if fetches else ():
        try:
            return _run(command, what, log, remedy, cwd, env, stdin, timeout, contained)
        except LocalError as error:
            if not momentary(error.why):
                raise
            with log.open("a") as out:
                out.write(f"it is tried again in {pause:g} s\n")
            time.sleep(pause)
    return _run(command, what, log, remedy, cwd, env, stdin, timeout, contained)


def momentary(text: str) -> bool:
    """Whether the end of an output shows a failure of the network or of a registry that may be over soon."""
    return _MOMENTARY.search(text) is not None


def _run(
    command: Sequence[str | Path],
    what: str,
    log: Path,
    remedy: str,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: IO[bytes] | None,
    timeout: float | None,
    contained: bool,
) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    wrapped = [*_CONTAIN, *command] if contained and can_contain() else command
    with log.open("ab") as out:
        out.write(("$ " + " ".join(map(str, command)) + "\n").encode())
        out.flush()
        try:
            done = subprocess.run(
                leashed(wrapped),
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=stdin if stdin is not None else subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            )
        except FileNotFoundError as error:
            raise LocalError(what=what, why=f"{command[0]} is not installed", remedy=remedy) from error
        except subprocess.TimeoutExpired as error:
            why = f"no end within {timeout:.0f} s\n{tail(log)}"
            raise LocalError(what=what, why=why, log=log, remedy=remedy) from error
    if done.returncode != 0:
        raise LocalError(what=what, why=tail(log), log=log, remedy=explain(tail(log, lines=40)) or remedy)


def capture(
    command: Sequence[str | Path],
    *,
    what: str = "",
    remedy: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = 120,
) -> str:
    """The stdout of a command, stripped. Raises :class:`LocalError` with its stderr when it fails."""
    what = what or f"{Path(command[0]).name} {' '.join(map(str, command[1:4]))} failed"
    try:
        done = subprocess.run(
            leashed(command),
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise LocalError(what=what, why=f"{command[0]} is not installed", remedy=remedy) from error
    except subprocess.TimeoutExpired as error:
        raise LocalError(what=what, why=f"no answer within {timeout:.0f} s", remedy=remedy) from error
    if done.returncode != 0:
        why = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise LocalError(what=what, why=why, remedy=explain(why) or remedy)
    return done.stdout.strip()


def succeeds(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 30
) -> bool:
    """Whether a command exists and ends well."""
    try:
        capture(command, env=env, timeout=timeout)
    except LocalError:
        return False
    return True


def explain(text: str) -> str:
    """The remedy for the failures that any program may meet; empty when the text shows none of them."""
    lower = text.lower()
    if "no space left on device" in lower:
        return "free some disk space (`python -m tdcs_local doctor` shows where), then run again"
    if "unable to apply caps" in lower:
        return (
            "docker asks for capabilities that this machine withholds: stop it, and `make up` starts it fitly"
        )
    if "permission denied" in lower and "docker.sock" in lower:
        return "let your user use docker (`sudo usermod -aG docker $USER`, then log in again), or run as root"
    return ""
