"""The throughput model against published rows, and the paper's figure against its ranges. Prints one JSON line."""

import json
import sys

from tests.unit.labs.published_runs import RUNS

from tdcs.decide.job.job_time import predict
from tdcs_labs import paper

BAR = 0.05


def errors() -> dict[str, float]:
    """Relative error of each predicted row."""
    found = {}
    for run in RUNS:
        prediction = predict(run.scenario)
        found[f"{run.nodes}x8 direct"] = round(prediction.direct.seconds / run.direct - 1, 4)
        found[f"{run.nodes}x8 cold"] = round(prediction.cold.seconds / run.cold - 1, 4)
    return found


def main() -> int:
    found = errors()
    checks = [check for row in paper.rows() for check in row.checks]
    print(
        json.dumps(
            {
                "bench": "model_rows",
                "errors": found,
                "worst": max(abs(error) for error in found.values()),
                "bar": BAR,
                "paperRangesHeld": sum(check.holds for check in checks),
                "paperRanges": len(checks),
                "paperLeastMargin": round(min(check.margin for check in checks), 4),
                "passed": all(abs(error) <= BAR for error in found.values())
                and all(check.holds for check in checks),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
