"""The models of the benchmark `zoo`, one after another: a line of JSON each."""

import json
from importlib.util import find_spec
from pathlib import Path

from tests.training.model.test_zoo import alone, in_stages, made, planned
from tests.training.model.transformers_models import MODELS
from tests.training.model.zoo import ZOO, Case
from torch import nn

from tdcs_train.errors import InputError


def row(name: str, case: Case) -> dict[str, object]:
    """What became of a model."""
    try:
        plan = planned(case)
    except InputError as error:
        sentence = " ".join(str(error).split()).replace(f"{Path.cwd()}/", "")
        return {"model": name, "runs": False, "refused with": sentence}
    found, wanted = in_stages(case, plan), alone(case)
    apart = max(abs(a - b) for a, b in zip(found, wanted, strict=True))
    parameters = sum(value.numel() for value in _module(case).parameters())
    return {
        "model": name,
        "runs": apart <= 1e-5,
        "parameters": parameters,
        "stages": len(plan.stages),
        "last loss of one process": round(wanted[-1], 6),
        "losses differ by": float(f"{apart:.1e}"),
    }


def _module(case: Case) -> nn.Module:
    model = made(case)
    module: nn.Module = model.module() if hasattr(model, "graph_signature") else model
    return module


def main() -> None:
    """Print the rows."""
    package = (
        {f"transformers' {name}": case for name, case in MODELS.items()} if find_spec("transformers") else {}
    )
    for name, case in (ZOO | package).items():
        print(json.dumps(row(name, case)), flush=True)


if __name__ == "__main__":
    main()
