"""How long some process of a pod waited for files, as the kernel counts it: "pressure stall information" of the pod's
control group (cgroup v2; Documentation/accounting/psi.rst).

It counts waits for disks and for file systems of whatever kind, and for any file: of programs and checkpoints too.
"""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DEPTH: Final = 5
_MOST_GROUPS: Final = 64
_SOME: Final = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What the kernel says of a pod: since when (seconds since 1970), and how many seconds it waited for files."""

    began: float
    waited: float


class PodPressures:
    """Of the pods of this node.

    Args:
        root: where the host's control groups are mounted.
    """

    def __init__(self, root: Path) -> None:
        self._root: Final = root
        self._groups: Final[dict[str, tuple[Path, float]]] = {}

    def of(self, pod: str) -> Pressure | None:
        """The pressure of a pod, by its uid; None where the kernel does not say it, or the pod has ended."""
        group = self._group(pod)
        if group is None:
            return None
        try:
            total = _SOME.search((group[0] / "io.pressure").read_text(encoding="ascii"))
        except OSError:
            self._groups.pop(pod, None)
            return None
        return Pressure(began=group[1], waited=int(total[1]) / 1e6) if total else None

    def processes(self, pod: str) -> list[int]:
        """A process of each control group of a pod, so one of each container at least."""
        group = self._group(pod)
        processes = []
        for folder, _, _ in itertools.islice(os.walk(group[0]), _MOST_GROUPS) if group else ():
            try:
                with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                    processes += [int(line) for line in itertools.islice(file, 1)]
            except OSError:
                continue  # it has ended since
        return processes

    def _group(self, pod: str) -> tuple[Path, float] | None:
        """The folder of a pod's control group, and when it was made."""
        group = self._groups.get(pod)
        if group is None:
            folder = next(
                _groups(str(self._root), {f"pod{pod}", f"pod{pod.replace('-', '_')}"}, _DEPTH), None
            )
            if folder is None:
                return None
            try:
                group = self._groups[pod] = (folder, folder.stat().st_ctime)
            except OSError:
                return None  # it has ended since
        return group

    def keep(self, pods: set[str]) -> None:
        for pod in self._groups.keys() - pods:
            del self._groups[pod]


def _groups(folder: str, group_names: set[str], depth: int) -> Iterator[Path]:
    """Groups of a pod: kubelet's are below others with `kube` in their names, whichever driver made them."""
    try:
        with os.scandir(folder) as entries:
            inside = [entry.path for entry in entries if "kube" in entry.name or entry.name.startswith("pod")]
            inside += [
                path for name in ("besteffort", "burstable") if os.path.isdir(path := f"{folder}/{name}")
            ]
    except OSError:
        return
    for path in inside:
        name = os.path.basename(path).removesuffix(".slice")
        if any(name == group_name or name.endswith(f"-{group_name}") for group_name in group_names):
            if os.path.isdir(path):
                yield Path(path)
        elif depth > 1 and os.path.isdir(path):
            yield from _groups(path, group_names, depth - 1)
