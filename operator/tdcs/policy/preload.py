"""What is loaded into the cache ahead of its readers, in which order and how fast.

The rules:

- Never collapse: of a dataset that does not fit, exactly the part that fits is loaded and kept.
- A part of a dataset is whole files, taken in the order of a hash of their paths. So the same request always
  names the same files, more of it adds files and exchanges none, and a file that comes or goes at the source
  moves the others by no more than its own size. Listing order would load one class of an image folder and none
  of the next.
- Loading may not starve the jobs that run: it takes what they leave of the store's bandwidth, and
  at least a fixed share of it, because a byte that is loaded once saves every later read.
- Within loading, bandwidth goes first to the dataset whose bytes save most (demand over size, see
  :mod:`tdcs.policy.allocation`), up to its own limit. A part of it is shared over all datasets by
  the number of their waiting jobs, so that no job waits for ever behind more valuable ones.

Limits: the value of a byte counts the jobs that are known now; how long they will still run is not
known to the cluster, and is not guessed.
"""

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

#: Share of the store that loading gets even when running jobs ask for all of it.
LOAD_FLOOR = 0.5
#: Part of the loading bandwidth that is shared by waiting jobs whatever their dataset's worth.
WAITING_SHARE = 0.1
#: About how many numbers are sorted at once.
PIECE = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """A dataset that is being loaded.

    Attributes:
        name: a stable name; ties are broken by it.
        missing_bytes: bytes that shall be cached and are not yet.
        worth: store bandwidth saved per byte cached (`allocation.saved_per_byte`).
        waiting_jobs: jobs that wait for it or stall on it.
        limit: its own bandwidth limit (`spec.preload.bandwidth`), in the caller's unit.
    """

    name: str
    missing_bytes: float
    worth: float
    waiting_jobs: int = 0
    limit: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Which part of a dataset shall be cached.

    Attributes:
        paths: files and folders, relative to the source, of which only what is in them is meant; empty for all.
        fraction: at most this part of the bytes of `paths`, above 0 and up to 1; None for all.
        amount: at most so many bytes; None for all. Not together with `fraction`.
    """

    paths: tuple[str, ...] = ()
    fraction: float | None = None
    amount: int | None = None

    def __post_init__(self) -> None:
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ValueError(
                f"fraction must be above 0 and at most 1, got {self.fraction}: write 0.5 for half"
            )
        if self.amount is not None and self.amount < 0:
            raise ValueError(f"amount must not be negative, got {self.amount}")
        if self.fraction is not None and self.amount is not None:
            raise ValueError("fraction and amount exclude each other: give one of them")
        for path in self.paths:
            if ".." in path.split("/"):
                raise ValueError(f"path {path!r} leads out of the source: leave '..' out")

    @property
    def plain_paths(self) -> tuple[str, ...]:
        """The paths in order, without slashes around them; empty when one of them names the whole source."""
        return tuple(sorted(set(_plain(self.paths))))

    @property
    def whole(self) -> bool:
        """Whether it is all of the dataset."""
        return not any(_plain(self.paths)) and self.fraction in {None, 1.0} and self.amount is None

    def limit(self, total: int) -> int:
        """Bytes that are asked for, of so many that lie under its paths."""
        if self.fraction is not None:
            return int(total * self.fraction)
        return total if self.amount is None else min(total, self.amount)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The files of a subset.

    Attributes:
        flags: one byte a file, in the order in which they were given: 1 when it is chosen.
        bytes: size of the chosen files.
        wanted_bytes: size that was asked for, whatever there is room for.
        unknown_paths: paths of the subset under which there is no file.
    """

    flags: bytearray
    bytes: int
    wanted_bytes: int
    unknown_paths: tuple[str, ...] = ()


def choose_files(
    *, files: Iterable[tuple[str, int]], subset: Subset, room: float = math.inf, seed: str = ""
) -> Chosen:
    """The files of a subset, and of them only what there is room for.

    A file that does not fit any more ends the choice, so at most one file's size of the limit stays unused.

    Args:
        files: path and bytes of each file.
        subset: what is asked for.
        room: bytes that there is room for.
        seed: another seed gives another order.
    """
    wanted_paths = _plain(subset.paths)
    missing = set(wanted_paths)
    flags, sizes, ranks = bytearray(), array("q"), array("Q")
    total = 0
    for path, size in files:
        found = _within(path, wanted_paths)
        missing.difference_update(found)
        flags.append(1 if found or not wanted_paths else 0)
        sizes.append(size)
        ranks.append(_rank(path, seed) if flags[-1] else 0)
        total += size if flags[-1] else 0
    wanted = total
    if subset.fraction is not None:
        wanted = int(total * subset.fraction)
    if subset.amount is not None:
        wanted = min(total, subset.amount)
    limit = min(wanted, room)
    if limit >= total:
        taken = total
    else:
        taken, full = 0, False
        for number in by_rank(ranks, (n for n, flag in enumerate(flags) if flag)):
            full = full or taken + sizes[number] > limit
            taken += 0 if full else sizes[number]
            flags[number] = 0 if full else 1
    unknown = tuple(path for path in wanted_paths if path in missing)
    return Chosen(flags=flags, bytes=taken, wanted_bytes=wanted, unknown_paths=unknown)


def by_rank(ranks: Sequence[int], numbers: Iterable[int]) -> Iterator[int]:
    """Numbers in the order of their ranks, which are 64-bit hashes; equal ranks in the order given.

    Sorted in small pieces: one sort of a million numbers holds the interpreter for a second or more, and all other
    threads of the process wait for that.
    """
    bits = (len(ranks) // PIECE).bit_length()
    pieces = [array("I") for _ in range(1 << bits)]
    for number in numbers:
        pieces[ranks[number] >> (64 - bits)].append(number)
    for piece in pieces:
        yield from sorted(piece, key=ranks.__getitem__)


def _plain(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths without slashes around them; empty as soon as one of them names the whole source."""
    plain = tuple(path.strip("/") for path in paths)
    return () if "" in plain or "." in plain else plain


def _within(path: str, wanted: Sequence[str]) -> list[str]:
    return [one for one in wanted if path == one or path.startswith(f"{one}/")]


def _rank(path: str, seed: str) -> int:
    digest = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8, key=seed.encode()[:64])
    return int.from_bytes(digest.digest())


def what_fits(*, missing_bytes: float, free_bytes: float) -> float:
    """Bytes to load into what is free: all, or exactly the part that fits."""
    return max(min(missing_bytes, free_bytes), 0.0)


def budget(*, capacity: float, reading: float, floor: float = LOAD_FLOOR) -> float:
    """The part of the store's capacity that loading may take beside jobs that read at `reading`."""
    return max(capacity - reading, capacity * floor, 0.0)


def share(
    *, loads: Sequence[Load], capacity: float, waiting_share: float = WAITING_SHARE
) -> dict[str, float]:
    """The bandwidth of each load, in the unit of `capacity`; the sum never exceeds it.

    Every load with a waiting job gets something, and nothing is left over while a load could take it.
    """
    rates = {load.name: 0.0 for load in loads}
    open_loads = [load for load in loads if load.missing_bytes > 0]
    waiting = sum(load.waiting_jobs for load in open_loads)
    left = max(capacity, 0.0)
    if waiting:
        common = left * waiting_share
        for load in open_loads:
            rates[load.name] = min(common * load.waiting_jobs / waiting, load.limit)
            left -= rates[load.name]
    for load in sorted(open_loads, key=lambda one: (-one.worth, one.missing_bytes, one.name)):
        more = max(min(left, load.limit - rates[load.name]), 0.0)
        rates[load.name] += more
        left -= more
    return rates
