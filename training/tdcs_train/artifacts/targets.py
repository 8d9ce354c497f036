"""Targets: the processors that a model can be compiled for, as the x86-64 psABI's micro-architecture levels.

A target is a name and the CPU features that its code may use, spelled as Linux spells them in /proc/cpuinfo.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tdcs_train.errors import InputError

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kind of processor. Of two targets that a node can run, the one of the higher level has the faster code."""

    name: str
    level: int
    features: frozenset[str]

    @property
    def compiler_name(self) -> str:
        """What LLVM and GCC call this processor."""
        return self.name


TARGETS = (
    Target(name="x86-64", level=1, features=frozenset()),
    Target(name="x86-64-v2", level=2, features=_V2),
    Target(name="x86-64-v3", level=3, features=_V3),
    Target(name="x86-64-v4", level=4, features=_V4),
)


def find_target(name: str) -> Target:
    """The target of this name.

    Raises:
        InputError: there is none.
    """
    for target in TARGETS:
        if target.name == name:
            return target
    raise InputError(f"unknown target {name}: choose from {', '.join(target.name for target in TARGETS)}")


def runnable(features: Iterable[str]) -> tuple[Target, ...]:
    """The targets that a node with these CPU features can run, the best first."""
    available = frozenset(features)
    return tuple(target for target in reversed(TARGETS) if target.features <= available)


def limit(features: Iterable[str], *, target: Target) -> frozenset[str]:
    """The features without those that only higher targets than this one have."""
    above = frozenset().union(
        *(candidate.features for candidate in TARGETS if candidate.level > target.level)
    )
    return frozenset(features) - (above - target.features)
