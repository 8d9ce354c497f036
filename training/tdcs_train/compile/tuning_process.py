"""The process that tunes: tries schedules for the parts of a model one after another, until it is ended.

    python -m tdcs_train.compile.tuning_process SUBJECT RECORDS

It is one process, and trials are compiled and measured in it: what is measured is not disturbed by trials that are
compiled, and a trial takes a fraction of a second. Whoever starts it ends it; each record is in the file when the next
trial begins.
"""

import ctypes
import math
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder.local_builder import default_build
from tvm.s_tir.meta_schedule.runner.local_runner import default_alloc_argument, default_run_evaluator

from tdcs_train.artifacts.targets import find_target
from tdcs_train.backends.registry import find_all
from tdcs_train.compile import library
from tdcs_train.compile.model_file import read_model
from tdcs_train.compile.model_import import import_model
from tdcs_train.compile.partition import partition
from tdcs_train.compile.promise import promise
from tdcs_train.compile.simplify import lift_weights, simplify
from tdcs_train.compile.tuning import READY, Subject

MOST_THREADS = 4
"""That search for schedules at once."""
TRIALS_AT_ONCE = 4
"""Of a part of the model, before the part is chosen that is worth the next ones."""
MOST_TRIALS = 100_000
"""More than any budget allows."""

END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2): who started this may be killed."""
INTRINSICS = "tvm.s_tir.tensor_intrin"


class Part:
    """A part of the model, and what is known of it.

    Args:
        context: TVM's search for schedules of it.
        weight: how often the model has it.
    """

    def __init__(self, context: Any, weight: float, database: Any) -> None:
        self._context, self._weight, self._database = context, weight, database
        self._workload = database.commit_workload(context.mod)
        self._started = self._ended = False
        self._visits = 0
        known = database.get_top_k(self._workload, 1)
        self._best = float(known[0].run_secs[0]) if known else math.inf

    @property
    def promise(self) -> float:
        """How much more trials may gain; less than 0 where no schedule is left to try."""
        return -1.0 if self._ended else promise(weight=self._weight, best=self._best, visits=self._visits)

    def visit(self) -> None:
        """Some trials; each is in the database when the next one begins."""
        if not self._started:
            self._started = True
            self._context.pre_tuning(
                MOST_TRIALS,
                TRIALS_AT_ONCE,
                database=self._database,
                cost_model=ms.cost_model.RandomModel(),
            )
        candidates = self._context.generate_measure_candidates()
        if candidates is None:
            self._ended = True
            return
        results = [self._try(candidate) for candidate in candidates]
        self._context.notify_runner_results(candidates, results)
        self._visits += 1

    def _try(self, candidate: Any) -> Any:
        seconds, reason = math.inf, "it gave no time"
        try:
            seconds = _seconds(candidate, self._context.target)
        except Exception as error:  # of many kinds, from TVM's Python and C++ code
            reason = str(error)
        if not math.isfinite(seconds):
            return ms.runner.RunnerResult(None, reason)
        self._best = min(self._best, seconds)
        self._database.commit_tuning_record(
            ms.database.TuningRecord(
                candidate.sch.trace, self._workload, [seconds], self._context.target, candidate.args_info
            )
        )
        return ms.runner.RunnerResult([seconds], None)


def _seconds(candidate: Any, target: Any) -> float:
    """Of a trial: the least, because whatever else the machine does makes it slower and never faster."""
    module = default_build(candidate.sch.mod, target, None)
    device = tvm.runtime.device("cpu", 0)
    arguments = default_alloc_argument(device, [info.as_json() for info in candidate.args_info], 1)
    config = ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=4)
    return float(min(default_run_evaluator(module, device, config, arguments)))


def main() -> None:
    """Tune."""
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    # TVM reads the intrinsics of all GPUs from their sources when it begins to tune, which takes longer than a short
    # budget; none is for the processors here.
    sys.modules[INTRINSICS] = ModuleType(INTRINSICS)
    what, records = msgspec.json.decode(sys.argv[1], type=Subject), Path(sys.argv[2])
    backends = find_all(what.backends)
    module = import_model(read_model(what.source), what.shapes).module
    module, weights = lift_weights(simplify(module))
    parts = partition(module, backends=backends, weights=len(weights))
    processor = find_target(what.target)
    target = library.compiler_target(processor, cores=threads())
    with target:
        legal = tvm.relax.get_pipeline("zero")(parts.module)
    contexts, weights_of_parts = ms.relax_integration.extracted_tasks_to_tune_contexts(
        ms.relax_integration.extract_tasks(legal, target),
        str(records),
        strategy=ms.search_strategy.EvolutionarySearch(
            population_size=64, init_min_unmeasured=16, genetic_num_iters=2
        ),
        num_threads=threads(),
    )
    database = ms.database.JSONDatabase(work_dir=str(records))
    pairs = zip(contexts, weights_of_parts, strict=True)
    known = [Part(context, float(weight), database) for context, weight in pairs]
    print(READY, flush=True)
    while (part := max(known, key=lambda part: part.promise, default=None)) and part.promise >= 0:
        part.visit()


def threads() -> int:
    """That search for schedules, and that the tuned code is made for."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS)


if __name__ == "__main__":
    main()
