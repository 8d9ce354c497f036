"""What tiers used, in files of one run."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

from tests.support.rights.comparison import Place, Right, Target, Use

VARIABLE = "TDCS_RIGHTS"
"""Names the folder for records of this run. `tests/tiers.py` makes one and sets it; without it nothing is recorded."""


def record(use: Use, *, tier: str) -> None:
    """Keep what a control plane or cluster of a tier saw for the comparison at the end of the run."""
    if not os.environ.get(VARIABLE):
        return
    folder = Path(os.environ[VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "used": sorted(use.used),
        "refused": sorted(use.refused.items()),
        "targets": sorted(use.targets),
    }
    # Several processes record; a file that is there is whole.
    written = folder / f".{uuid.uuid4().hex}"
    written.write_text(json.dumps(content))
    written.rename(folder / f"{tier}{written.name}.json")


def recorded(folder: Path) -> dict[str, Use]:
    """What each tier used."""
    use_by_tier: dict[str, Use] = {}
    for file in sorted(folder.glob("*.json")):
        tier = file.name.partition(".")[0]
        content = json.loads(file.read_text())
        use = Use(
            used=frozenset(Right(*fields) for fields in content["used"]),
            refused={Right(*fields): answer for fields, answer in content["refused"]},
            targets=frozenset(
                Target(Right(*right), Place(place), name) for right, place, name in content["targets"]
            ),
        )
        use_by_tier[tier] = use_by_tier.get(tier, Use()) | use
    return use_by_tier
