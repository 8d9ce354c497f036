"""What it costs the remote-read client to count how long pods wait: processor time of a read's beginning and end.

    python -m bench.remote_reads.pod_wait_cost

A read of a file of 100 KB takes 0.42 ms of processor time in the client, its agent and its reader together
(docs/explanation/remote-reads.md); `share` is of that. One JSON line is printed.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

from tdcs.engine.pod_wait_table import PodWaitTable, WaitOrigin
from tdcs.node.reader.serving.pod_clock import PodClock

READ_NANOSECONDS = 420_000
READS = 100_000
AT_ONCE = 8
THREADS = 200
"""Of which 10 s later it is asked again which pod they are of: as often as in a run of that length."""


def main() -> None:
    """Measure five times, and print the median."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        proc = Path(folder, "proc")
        for thread in range(1, THREADS + 1):
            (proc / str(thread)).mkdir(parents=True)
            pod = f"0b0c3f4e-1c5a-4f0e-9d2b-{thread % 20:012d}"
            (proc / str(thread) / "cgroup").write_text(f"0::/kubepods/burstable/pod{pod}/container\n")
        samples = []
        for number in range(5):
            clock = PodClock(PodWaitTable(Path(folder, f"table-{number}")), proc=proc)
            begin = time.process_time_ns()
            for _ in range(READS // AT_ONCE):
                waits = [clock.begin(1 + (_ * AT_ONCE + thread) % THREADS) for thread in range(AT_ONCE)]
                for wait in waits:
                    assert wait is not None
                    clock.end(wait, WaitOrigin.PEER)
            samples.append((time.process_time_ns() - begin) / READS)
    nanoseconds = statistics.median(samples)
    print(
        json.dumps(
            {
                "bench": "pod_wait_cost",
                "nanosecondsARead": round(nanoseconds),
                "readNanoseconds": READ_NANOSECONDS,
                "share": round(nanoseconds / READ_NANOSECONDS, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
