"""What a stage costs on one level of the network: seconds, or bytes of memory."""

from dataclasses import dataclass

import numpy

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
        difference: Floats = values[end] - values[starts]
        return difference


@dataclass(frozen=True, kw_only=True)
class TimeTerms:
    """Seconds a mini-batch of a stage, the inverse of its rate."""

    setting: Setting
    compute: Floats
    """compute[k, j]: seconds of the layers between the states on one machine of this level; infinite without layers."""

    def alone(self, starts: Integers, end: int) -> Floats:
        """(C + s(m) P / b) / m, the bandwidth times the workers in a machine."""
        return self._fitting(starts, end, None, within=self.setting.within)

    def after_cut(self, cuts: Integers, end: int, machines: int) -> Floats:
        """The slowest of (C + s(m') P / b) / m' and the transfers at both ends of the stage."""
        setting = self.setting
        states, options = setting.states, setting.options
        bandwidth = setting.level.bandwidth * options.activation_ratio * setting.counts
        times = self._fitting(cuts, end, machines, within=1)
        times = numpy.maximum(times, 2 * states.cut_bytes[cuts][:, None] / bandwidth)
        if end != len(states.members) - 1:
            times = numpy.maximum(times, 2 * states.cut_bytes[end] / bandwidth)
        return times[:, : machines - 1]

    def _fitting(self, starts: Integers, end: int, machines: int | None, *, within: int) -> Floats:
        """Infinite where the memory is too small; with the forward twice where it is large enough for that alone."""
        setting = self.setting
        if setting.options.memory_bytes is None:
            return self._stage(starts, end, within=within)
        limit, otherwise = setting.options.memory_bytes, numpy.array(numpy.inf)
        if setting.options.recompute:
            too_large = recomputing_bytes(setting, starts, end, machines) > limit
            otherwise = numpy.where(too_large, numpy.inf, self._stage(starts, end, within=within, again=True))
        fits = stash_bytes(setting, starts, end, machines) <= limit
        stage_seconds: Floats = numpy.where(fits, self._stage(starts, end, within=within), otherwise)
        return stage_seconds

    def _stage(self, starts: Integers, end: int, *, within: int, again: bool = False) -> Floats:
        setting = self.setting
        parameters = setting.difference(setting.states.parameter_bytes, starts, end)
        sync = synchronisation(setting.options.sync, setting.counts) / (setting.level.bandwidth * within)
        compute = self.compute[starts, end]
        if again:
            compute = compute + setting.difference(setting.states.forward_seconds, starts, end)
        times: Floats = (compute[:, None] + parameters[:, None] * sync) / setting.counts
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
        stage_bytes = self._stage(cuts, end, machines)
        return stage_bytes[:, : machines - 1]

    def _stage(self, starts: Integers, end: int, machines: int | None) -> Floats:
        stash = stash_bytes(self.setting, starts, end, machines)
        if self.setting.options.recompute:
            stash = numpy.minimum(stash, recomputing_bytes(self.setting, starts, end, machines))
        stage_bytes: Floats = numpy.maximum(stash, self.least[starts, end][:, None])
        if self.setting.options.straight:
            stage_bytes[:, 1:] = numpy.inf
        return stage_bytes


def stash_bytes(setting: Setting, starts: Integers, end: int, machines: int | None) -> Floats:
    """What a stage holds for mini-batches in flight: ceil((M - m) / m') times its activations and parameters, by m'.

    `machines` is m; none for a stage without a cut, where m' is m. The published formula lets a stage with no machine
    after it hold nothing; here every stage holds one mini-batch.
    """
    states = setting.states
    batch_bytes = setting.difference(states.activation_bytes + states.parameter_bytes, starts, end)
    stage_bytes: Floats = batch_bytes[:, None] * _in_flight(setting, machines)
    return stage_bytes


def recomputing_bytes(setting: Setting, starts: Integers, end: int, machines: int | None) -> Floats:
    """What a stage holds that computes its forward again: what arrives, and parameters, for the mini-batches in flight,
    and the activations of one."""
    states = setting.states
    batch_bytes = states.cut_bytes[starts] + setting.difference(states.parameter_bytes, starts, end)
    activation_bytes = setting.difference(states.activation_bytes, starts, end)
    stage_bytes: Floats = batch_bytes[:, None] * _in_flight(setting, machines) + activation_bytes[:, None]
    return stage_bytes


def _in_flight(setting: Setting, machines: int | None) -> Floats:
    counts = setting.counts
    behind = setting.level.machines - (counts if machines is None else machines)
    in_flight: Floats = numpy.maximum(numpy.ceil(behind / counts), 1)
    return in_flight
