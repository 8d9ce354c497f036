"""`make recording`: a terminal in which a Dataset and a job are applied, as a picture that moves.

The commands run on the local cluster as it is after `make demo`, and what they print is what is shown.
"""

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tdcs_local import demo, host, programs, shell
from tdcs_local.containers import node_image
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.paths import CHECKOUT, EXAMPLES, KUBECONFIG, log_file
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets

NAMESPACE = "vision"
COLUMNS, ROWS = 120, 34
LONGEST_WAIT = 1.5
"""Seconds in which nothing is printed are cut to so many."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A command that is typed and run, and how many seconds a person has to read what it prints."""

    words: str
    pause: float = 3.0
    clear: bool = False
    """Whether the screen is cleared before it."""


LINES = (
    Line(words="kubectl apply -f dataset.yaml -f trainingjob.yaml"),
    Line(words="kubectl get datasets,trainingjobs", pause=4.0),
    Line(words="kubectl wait dataset/mnist --for=condition=Loaded --timeout=5m", pause=1.0),
    Line(words="kubectl get datasets", pause=4.0),
    Line(words="tdcs explain job mnist", pause=9.0, clear=True),
    Line(
        words="kubectl wait trainingjob/mnist --for=condition=Succeeded --timeout=10m", pause=1.0, clear=True
    ),
    Line(words="kubectl get trainingjobs", pause=4.0),
    Line(words="tdcs status", pause=8.0),
)


def script(lines: Sequence[Line]) -> str:
    """A program for bash that types and runs the lines."""
    typed = [
        "set -eu",
        'type_line() { printf "\\033[1;32m$\\033[0m "',
        'for ((i = 0; i < ${#1}; i++)); do printf %s "${1:i:1}"; sleep 0.03; done; echo; }',
    ]
    for line in lines:
        if line.clear:
            typed.append("clear")
        typed += [f"type_line {shlex.quote(line.words)}", line.words, f"sleep {line.pause}", "echo"]
    return "\n".join(typed) + "\n"


def record(*, output: Path, reporter: Reporter) -> None:
    """Prepares a namespace in which nothing is loaded yet, runs the lines in a terminal, and writes the picture.

    Raises :class:`LocalError` when there is no local cluster with TDCS, or a command fails.
    """
    host.require_programs("asciinema", "npm", "node", reporter=reporter)
    picture = programs.ensure("svg-term", reporter=reporter) / "node_modules" / ".bin" / "svg-term"
    kubectl = Kubectl()
    _prepare(kubectl, reporter=reporter)
    with (
        tempfile.TemporaryDirectory(prefix="tdcs-recording-") as scratch,
        reporter.step("record the terminal"),
    ):
        folder = Path(scratch)
        (folder / "lines.sh").write_text(script(LINES))
        for name in ("dataset.yaml", "trainingjob.yaml"):
            (folder / name).write_bytes((EXAMPLES / name).read_bytes())
        (folder / "config").write_bytes(KUBECONFIG.read_bytes())
        commands = folder / "bin"
        commands.mkdir()
        (commands / "kubectl").symlink_to(node_image.kubectl())
        (commands / "tdcs").symlink_to(CHECKOUT / ".venv" / "bin" / "tdcs")
        config = folder / "config"
        choose = ["config", "set-context", "--current", f"--namespace={NAMESPACE}"]
        shell.capture(
            [commands / "kubectl", "--kubeconfig", config, *choose], what="choosing the namespace failed"
        )
        cast = folder / "terminal.cast"
        shell.run(
            [
                *("asciinema", "rec", "--quiet", "--overwrite", f"--idle-time-limit={LONGEST_WAIT}"),
                *("--cols", str(COLUMNS), "--rows", str(ROWS), "--command", "bash lines.sh", cast),
            ],
            what="recording the terminal failed",
            log=log_file("recording"),
            cwd=folder,
            env={
                "KUBECONFIG": str(config),
                "PATH": f"{commands}:/usr/local/bin:/usr/bin:/bin",
                "TERM": "xterm-256color",
            },
        )
        shell.run(
            [
                picture,
                "--in",
                cast,
                "--out",
                output,
                "--window",
                "--width",
                str(COLUMNS),
                "--height",
                str(ROWS),
            ],
            what="drawing the recording failed",
            log=log_file("recording"),
        )


def _prepare(kubectl: Kubectl, *, reporter: Reporter) -> None:
    demo.forget(kubectl=kubectl)
    kubectl.delete("namespaces", NAMESPACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    datasets.grant_access(kubectl, namespace=NAMESPACE, reporter=reporter)
