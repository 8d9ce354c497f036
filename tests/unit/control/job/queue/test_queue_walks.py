"""Some random walks of the queue of jobs; `make queue-walks` makes a thousand."""

from collections import Counter

from tests.support import virtual_time
from tests.unit.control.job.queue.queue_walks import walk

SEEDS = (0, 3, 8, 9, 22, 39, 57)
"""Seven that kill, drain, evict, stop a queue, preempt and ask for nodes."""

STEPS = 20


def test_random_walks_of_the_queue_leave_no_job_behind() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        met.update(virtual_time.run(walk(seed, steps=STEPS)))
    # Else they have not been where things go wrong.
    assert met["kill"] >= 5, met
    assert met["evict_workload"] + met["deactivate"] >= 1, met
    assert met["drain"] + met["cordon"] >= 5, met
    assert met["event Preempted"] >= 1, met
    assert met["event QueueStopped"] >= 1, met
    assert met["nodes_come"] + met["answer_request"] >= 1, met
