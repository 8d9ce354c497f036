"""Models as people write them: profiled, planned and run as three stages beside one process, or refused.

    python -m bench.training.zoo

The models are those of tests/training/model/zoo.py; three workers are threads of one process that are given every
micro-batch, in mode `flush`. Writes results/zoo.jsonl.
"""

import argparse
import tempfile
from pathlib import Path

from bench.training import processes
from bench.training.records import keep


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory() as name:
        program = processes.start(["-m", "bench.training.zoo_worker"], scratch=Path(name))
        rows = processes.answers([program], within=900)
    keep("zoo", sorted(rows, key=lambda row: not row["runs"]))


if __name__ == "__main__":
    main()
