"""Reads of a TensorFlow parameter-server step in the order of a plan, by control dependencies.

A step of ParameterServerStrategy reads each variable from its server when the graph comes to it. All reads can run
from the start, so the variables arrive in any order, and the first layer may wait for the last one's. Here a read
begins when the read `window` places before it has arrived at the worker. The framework stays as it is.

Source: Jiang et al., "Fine-grained scheduling by parameter priority in distributed CNN" (2022); TicTac (MLSys'19).
"""

from collections.abc import Sequence

import tensorflow as tf  # type: ignore[import-untyped, import-not-found, unused-ignore]

from tdcs_train.errors import InputError
from tdcs_train.ps.read_order import read_order


def in_order(variables: Sequence[tf.Variable], plan: Sequence[int], *, window: int = 2) -> list[tf.Tensor]:
    """The values of variables, read in the order of a plan; for use inside the function of a step.

    Args:
        variables: Of any servers.
        plan: The priority of each variable; a larger one is read first, equal ones in the order given.
        window: Reads under way at a time. 1 keeps the order exactly and waits for an answer between two reads; with 2
            a variable may overtake its neighbour, and the link stays busy.

    Returns:
        The values in the order of `variables`, on the device of the caller. Gradients pass through to the variables.

    Raises:
        InputError: There are more or fewer priorities than variables, or the window is not positive.
    """
    values, _ = _read(variables, plan, window=window, traced=False)
    return values


def in_order_traced(
    variables: Sequence[tf.Variable], plan: Sequence[int], *, window: int = 2
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The same, and when each value was at the caller's device, in seconds; a read waits for that clock, too."""
    return _read(variables, plan, window=window, traced=True)


def _read(
    variables: Sequence[tf.Variable], plan: Sequence[int], *, window: int, traced: bool
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    if len(variables) != len(plan):
        raise InputError(
            f"the plan has {len(plan)} priorities for {len(variables)} variables; order this model again"
        )
    if window < 1:
        raise InputError(f"the window is {window}; at least one read must be under way")
    arrived: list[tf.Tensor] = []
    values: dict[int, tf.Tensor] = {}
    times: dict[int, tf.Tensor] = {}
    for turn, place in enumerate(read_order(plan)):
        with tf.control_dependencies(arrived[turn - window : turn - window + 1] if turn >= window else []):
            # read_value copies what the server sent on the caller's device: that copy exists once it has arrived
            values[place] = variables[place].read_value()
        if traced:
            times[place] = _clock(values[place])
        arrived.append(times[place] if traced else values[place])
    places = range(len(variables))
    return [values[place] for place in places], [times[place] for place in places] if traced else []


def _clock(value: tf.Tensor) -> tf.Tensor:
    """When a value is there."""

    def clock(value: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([value]):
            return tf.timestamp()

    concrete = tf.function(clock).get_concrete_function(tf.TensorSpec(value.shape, value.dtype))
    concrete.add_to_graph(tf.compat.v1.get_default_graph())
    # A function's stateful operations run in the order of its text, so clocks would wait for each other and every trace
    # would look ordered. A call of this kind is not known to have state.
    (time,) = tf.raw_ops.PartitionedCall(args=[value], Tout=[tf.float64], f=concrete)
    time.set_shape([])
    return time
