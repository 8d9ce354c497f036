"""Models as people write them: profiled, planned and run as three stages beside one process, or refused.

    python -m bench.training.zoo

The models are those of tests/training/model/zoo.py, and of transformers_models.py where `transformers` can be fetched;
three workers are threads of one process that are given every micro-batch, in mode `flush`. Writes results/zoo.jsonl.
"""

import argparse
import tempfile
from pathlib import Path

from bench.training import processes
from bench.training.records import keep

from tdcs_local.containers import torch_packages
from tdcs_local.progress import Reporter


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory() as name:
        packages = torch_packages.ensure(reporter=Reporter())
        program = processes.start(["-m", "bench.training.zoo_worker"], scratch=Path(name), packages=packages)
        rows = processes.answers([program], within=1800)
    keep("zoo", sorted(rows, key=lambda row: not row["runs"]))


if __name__ == "__main__":
    main()
