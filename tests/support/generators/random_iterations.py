"""Random iterations of training, for tests and benchmarks of orders of transfers."""

import random

from tdcs_train.plan.iteration import Iteration, Operation, Transfer


def random_iteration(chooser: random.Random) -> Iteration:
    """7 to 13 operations, 6 of which receive parameters; everything leads to the last one."""
    count = chooser.randint(6, 12)
    receiving = chooser.sample(range(count), 6)
    operations = []
    for place in range(count):
        needs = chooser.sample(range(place), min(place, chooser.randint(0, 2)))
        receives = receiving.index(place) if place in receiving else None
        operations.append(Operation(str(place), chooser.expovariate(1), tuple(sorted(needs)), receives))
    sinks = set(range(count)).difference(*(operation.needs for operation in operations))
    operations.append(Operation("end", 0.1, tuple(sorted(sinks))))
    return Iteration(tuple(operations), tuple(Transfer(str(n), chooser.expovariate(1)) for n in range(6)))
