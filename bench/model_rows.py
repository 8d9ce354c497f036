"""The throughput model against published rows, and the paper's figure against its ranges. Prints one JSON line."""

import json
import sys

from tdcs.simulate import paper
from tdcs.simulate.predict import JobScenario, predict

IMAGENET = 1_281_167 * 114_660
#: One constant for all rows: what the NAS of the runs gave, in bytes per second.
NAS = 180e6
#: Nodes, warm, direct and cold seconds of 90 epochs of ResNet50 on 8 V100 per node (Fluid's
#: documentation, "Accelerate PVC with Fluid"); the warm run gives the speed of the GPUs.
ROWS = ((1, 12_855, 13_750, 13_840), (4, 5_542, 8_159, 6_223))
BAR = 0.05


def errors() -> dict[str, float]:
    """Relative error of each predicted row."""
    found = {}
    for nodes, warm, direct, cold in ROWS:
        prediction = predict(
            JobScenario(
                gpus=8 * nodes,
                nodes=nodes,
                epochs=90,
                dataset_bytes=IMAGENET,
                cache_bytes=600e9,
                page_cache_bytes=200e9,
                remote_rate=NAS,
                compute_rate=IMAGENET * 90 / warm,
            )
        )
        found[f"{nodes}x8 direct"] = round(prediction.direct.seconds / direct - 1, 4)
        found[f"{nodes}x8 cold"] = round(prediction.cold.seconds / cold - 1, 4)
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
