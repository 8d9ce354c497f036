"""The throughput model against published rows, and the paper's figure against its ranges. Prints one JSON line."""

import json
import sys

from tests.unit.labs.published_runs import RUNS

from tdcs.decide.job.job_time import predict
from tdcs_labs import paper

BAR = 0.05


def errors() -> dict[str, float]:
    """Relative error of each predicted row."""
    error_by_row = {}
    for run in RUNS:
        prediction = predict(run.scenario)
        error_by_row[f"{run.nodes}x8 direct"] = round(prediction.direct.seconds / run.direct - 1, 4)
        error_by_row[f"{run.nodes}x8 cold"] = round(prediction.cold.seconds / run.cold - 1, 4)
    return error_by_row


def main() -> int:
    error_by_row = errors()
    checks = [check for row in paper.rows() for check in row.checks]
    print(
        json.dumps(
            {
                "bench": "model_rows",
                "errors": error_by_row,
                "worst": max(abs(error) for error in error_by_row.values()),
                "bar": BAR,
                "paperRangesHeld": sum(check.holds for check in checks),
                "paperRanges": len(checks),
                "paperLeastMargin": round(min(check.margin for check in checks), 4),
                "passed": all(abs(error) <= BAR for error in error_by_row.values())
                and all(check.holds for check in checks),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
