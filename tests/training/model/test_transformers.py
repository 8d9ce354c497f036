"""Models of the package `transformers` as stages, where it is at hand."""

import pytest
import torch
from tests.training.model.test_zoo import alone, in_stages, planned
from tests.training.model.transformers_models import MODELS

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(400)  # the first one imports the package, which takes long on a busy machine
pytest.importorskip(
    "transformers",
    reason="transformers is not at hand: `tdcs_local torch --packages` fetches it, `make training` does",
)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_transformers_runs_in_three_stages_cut_inside_of_its_blocks(name: str) -> None:
    plan = planned(MODELS[name])
    assert sum(map(len, plan.stages)) > 50  # no module of the package is left whole
    assert in_stages(MODELS[name], plan) == pytest.approx(alone(MODELS[name]), abs=1e-5)
