"""Pictures of results."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdcs.api.failures import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")


def check_plot(path: Path) -> None:
    """Refuse a plot that cannot be made, before a long run rather than after it.

    Raises:
        InputError: the ending is unknown, the folder is missing, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: plots are written as .svg or .png; give the file one of these endings")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    try:
        _try_to_write(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _try_to_write(path: Path) -> None:
    """Open the file as a writer would; only trying tells for file systems that refuse even the superuser."""
    existed = os.path.lexists(path)
    # Without O_NONBLOCK a pipe without a reader would keep us waiting.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666))
    if not existed:
        path.unlink()


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written ({error.strerror}); name a file that you may write")


def plot_completions(*, path: Path, completions: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw which part of the jobs has ended how long after its submission, a line per scheme."""

    def draw(axes: "Axes") -> None:
        for name, times in completions.items():
            ordered = sorted(times)
            parts = [(index + 1) / len(ordered) for index in range(len(ordered))]
            axes.plot([time / 3600 for time in ordered], parts, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("hours from submission to end")
        axes.set_ylabel("part of the jobs")
        # A file name with dollar signs is no formula.
        axes.set_title(title, parse_math=False)
        axes.legend(loc="upper left")
        axes.grid(alpha=0.3)

    _save(path=path, draw=draw)


def plot_bars(
    *, path: Path, groups: Sequence[str], bars: Mapping[str, Sequence[float]], ylabel: str, title: str
) -> None:
    """Draw groups of bars: `bars` gives a name to one value per group."""

    def draw(axes: "Axes") -> None:
        width = 0.8 / len(bars)
        for index, (name, values) in enumerate(bars.items()):
            at = [group + (index - (len(bars) - 1) / 2) * width for group in range(len(groups))]
            axes.bar(at, list(values), width=width, label=name)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylabel(ylabel)
        # A file name with dollar signs is no formula.
        axes.set_title(title, parse_math=False)
        axes.legend(loc="upper left")
        axes.grid(axis="y", alpha=0.3)

    _save(path=path, draw=draw)


def _save(*, path: Path, draw: Any) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same input gives the same file: no date, and ids from a fixed salt.
    with mpl.rc_context({"svg.hashsalt": "tdcs"}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        draw(figure.subplots())
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        try:
            figure.savefig(path, metadata=metadata)
        except OSError as error:
            raise _unwritable(path, error) from error
