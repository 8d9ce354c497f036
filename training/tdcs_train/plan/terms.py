"""What a stage costs on one level of the network: seconds, or bytes of memory."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from tdcs_train.plan.options import Level, Options, synchronisation
from tdcs_train.plan.recurrence import Floats, Integers
from tdcs_train.plan.states import States


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One level of the network under a model."""

    states: States
    level: Level
    within: int
    """Workers in one machine of this level."""
    options: Options

    @property
    def counts(self) -> Floats:
        """1 to the number of machines."""
        return numpy.arange(1, self.level.machines + 1, dtype=numpy.float64)

    def difference(self, values: Floats, starts: Integers, end: int) -> Floats:
        """What the layers between states have of something, given what each state has."""
        found: Floats = values[end] - values[starts]
        return found


@dataclass(frozen=True, kw_only=True)
class TimeTerms:
    """Seconds a mini-batch of a stage, the inverse of its rate."""

    setting: Setting
    compute: Floats
    """compute[k, j]: seconds of the layers between the states on one machine of this level; infinite without layers."""

    def alone(self, starts: Integers, end: int) -> Floats:
        """(C + s(m) P / b) / m, the bandwidth times the workers in a machine."""
        times = self._stage(starts, end, within=self.setting.within)
        return numpy.where(too_large(self.setting, starts, end, None), numpy.inf, times)

    def after_cut(self, cuts: Integers, end: int, machines: int) -> Floats:
        """The slowest of (C + s(m') P / b) / m' and the transfers at both ends of the stage."""
        setting = self.setting
        states, options = setting.states, setting.options
        bandwidth = setting.level.bandwidth * options.activation_ratio * setting.counts
        times = self._stage(cuts, end, within=1)
        times = numpy.maximum(times, 2 * states.cut_bytes[cuts][:, None] / bandwidth)
        if end != len(states.members) - 1:
            times = numpy.maximum(times, 2 * states.cut_bytes[end] / bandwidth)
        fitting: Floats = numpy.where(too_large(setting, cuts, end, machines), numpy.inf, times)
        return fitting[:, : machines - 1]

    def _stage(self, starts: Integers, end: int, *, within: int) -> Floats:
        setting = self.setting
        parameters = setting.difference(setting.states.parameter_bytes, starts, end)
        sync = synchronisation(setting.options.sync, setting.counts) / (setting.level.bandwidth * within)
        times: Floats = (self.compute[starts, end][:, None] + parameters[:, None] * sync) / setting.counts
        if setting.options.straight:
            times[:, 1:] = numpy.inf
        return times


@dataclass(frozen=True, kw_only=True)
class MemoryTerms:
    """Bytes of a stage for the mini-batches in flight; with it the dynamic program finds the least memory."""

    setting: Setting
    least: Floats
    """least[k, j]: the least that the levels below need for the layers between the states."""

    def alone(self, starts: Integers, end: int) -> Floats:
        """As the only stage."""
        return self._stage(starts, end, None)

    def after_cut(self, cuts: Integers, end: int, machines: int) -> Floats:
        """As the stage after a cut."""
        held = self._stage(cuts, end, machines)
        return held[:, : machines - 1]

    def _stage(self, starts: Integers, end: int, machines: int | None) -> Floats:
        held: Floats = numpy.maximum(
            stash_bytes(self.setting, starts, end, machines), self.least[starts, end][:, None]
        )
        if self.setting.options.straight:
            held[:, 1:] = numpy.inf
        return held


def stash_bytes(setting: Setting, starts: Integers, end: int, machines: int | None) -> Floats:
    """What a stage holds for mini-batches in flight: ceil((M - m) / m') times its activations and parameters, by m'.

    `machines` is m; none for a stage without a cut, where m' is m. The published formula lets a stage with no machine
    after it hold nothing; here every stage holds one mini-batch.
    """
    states, counts = setting.states, setting.counts
    one = setting.difference(states.activation_bytes + states.parameter_bytes, starts, end)
    in_flight = numpy.ceil((setting.level.machines - (counts if machines is None else machines)) / counts)
    held: Floats = one[:, None] * numpy.maximum(in_flight, 1)
    return held


def too_large(setting: Setting, starts: Integers, end: int, machines: int | None) -> NDArray[numpy.bool_]:
    """Whether a stage exceeds the memory, by m'."""
    limit = setting.options.memory_bytes
    if limit is None:
        return numpy.zeros((1, 1), dtype=numpy.bool_)
    exceeds: NDArray[numpy.bool_] = stash_bytes(setting, starts, end, machines) > limit
    return exceeds
