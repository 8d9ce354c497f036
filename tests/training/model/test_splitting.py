"""A model in stages computes what the whole model computes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.training import models
from torch import nn

from tdcs_train.model.errors import ModelError, PlanError
from tdcs_train.model.splitting import split
from tdcs_train.model.tracing import TracedModel, trace
from tdcs_train.pipeline.stage import StageCompute
from tdcs_train.pipeline.values import Packet

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Any], int]] = {
    "a VGG": (models.SmallVgg, models.images, 1),
    "a residual net": (models.Residual, models.images, 1),
    "an LSTM encoder-decoder with attention": (models.Translator, models.sentences, 2),
}


def layers_in(traced: TracedModel, count: int) -> list[list[str]]:
    """The layers without inputs, in `count` stages of about as many each."""
    ids = [layer.id for layer in traced.layers if not layer.description.startswith("Input")]
    return [list(ids[len(ids) * n // count : len(ids) * (n + 1) // count]) for n in range(count)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_output_loss_and_gradients_of_the_stages_equal_those_of_the_whole(case: str, count: int) -> None:
    make, batch_of, inputs_count = CASES[case]
    torch.manual_seed(1)
    whole = make()
    parted = copy.deepcopy(whole)
    inputs, labels = batch_of(6, 3)
    output = whole(*inputs) if isinstance(inputs, tuple) else whole(inputs)
    loss = models.cross_entropy(output, labels)
    loss.backward()

    traced = trace(parted, inputs=inputs_count)
    cut = split(traced, layers_in(traced, count))
    stages = [StageCompute(cut, number, models.cross_entropy) for number in range(count)]
    packet = stages[0].enter(0, inputs, labels)
    for stage in stages:
        packet = stage.forward(packet, version=0)
    gradients: dict[str, torch.Tensor] = {}
    back = Packet(0, {})
    for stage in reversed(stages):
        back, stage_gradients = stage.backward(back)
        for name, gradient in zip(stage.parameters, stage_gradients, strict=True):
            assert gradient is not None
            gradients[stage.part.names[name]] = gradient
    assert packet.values["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    expected = {name: parameter.grad for name, parameter in whole.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-6, rtol=0)
    for name, buffer in whole.named_buffers():
        torch.testing.assert_close(parted.get_buffer(name), buffer, atol=1e-6, rtol=0)


def test_a_layer_that_works_in_place_leaves_a_value_of_another_stage_unchanged() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    traced = trace(model)
    cut = split(traced, [["node2"], ["node3", "node4"]])
    first, second = (StageCompute(cut, number, models.cross_entropy) for number in (0, 1))
    packet = first.forward(first.enter(0, torch.randn(3, 4), torch.tensor([0, 1, 0])), version=0)
    before = {name: value.clone() for name, value in packet.values.items()}
    second.forward(packet, version=0)
    for name, value in packet.values.items():
        torch.testing.assert_close(value, before[name])


class _Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.first(values)
        if values.sum() > 0:
            values = -values
        return self.second(values)


def test_a_model_that_cannot_be_traced_is_refused_with_the_line_and_its_layers() -> None:
    with pytest.raises(ModelError) as refusal:
        trace(_Branching())
    message = str(refusal.value)
    assert "test_splitting.py, line" in message
    assert "`if values.sum() > 0:`" in message
    assert "--layers first,second" in message


def test_a_model_that_cannot_be_traced_can_be_given_as_a_list_of_layers() -> None:
    traced = trace(_Branching(), layers=["first", "second"])
    assert [layer.description.split("(")[0] for layer in traced.layers] == ["Input0", "Linear", "Linear"]


def test_a_layer_that_the_model_lacks_is_refused_with_the_names_it_has() -> None:
    with pytest.raises(ModelError, match=r"no layer 'third'; its modules: first, second"):
        trace(_Branching(), layers=["first", "third"])


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.middle = nn.Linear(4, 4)
        self.words = nn.Linear(4, 10, bias=False)
        self.words.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.words(self.middle(self.embed(tokens)))


@pytest.mark.parametrize("stages", [[["node2", "node3"], ["node4"]], [["node2"], ["node3"], ["node4"]]])
def test_a_shared_parameter_travels_to_a_later_stage_and_its_gradient_comes_back(
    stages: list[list[str]],
) -> None:
    model = _Tied()
    tokens, labels = torch.tensor([1, 5, 9]), torch.tensor([2, 0, 7])
    expected = models.cross_entropy(model(tokens), labels)
    expected.backward()
    cut = split(trace(copy.deepcopy(model)), stages)
    parts = [StageCompute(cut, number, models.cross_entropy) for number in range(len(stages))]
    assert [name for part in parts for name in part.part.names.values()] == [
        "embed.weight",
        "middle.weight",
        "middle.bias",
    ], "one stage has it"
    packet = parts[0].enter(0, tokens, labels)
    for part in parts:
        packet = part.forward(packet, version=0)
    assert packet.values["loss"] == pytest.approx(float(expected.detach()), abs=1e-6)
    back = Packet(0, {})
    gradients: dict[str, torch.Tensor | None] = {}
    for part in reversed(parts):
        back, stage_gradients = part.backward(back)
        gradients |= dict(zip(part.part.names.values(), stage_gradients, strict=True))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-6, rtol=0)


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.relu(self.inner(values)))


def test_running_statistics_that_a_plan_cuts_in_two_are_refused_with_the_option_that_keeps_them() -> None:
    with pytest.raises(
        PlanError, match=r"running statistics .* node3 in stage 0 and node6 in stage 1; .*--together"
    ):
        split(trace(_Twice()), [["node2", "node3"], ["node4", "node5", "node6"]])


def test_a_parameter_at_two_places_of_a_stage_has_the_weights_of_a_version_at_both() -> None:
    model = _Tied()
    whole = {name: value.detach().clone() for name, value in model.named_parameters()}
    stage = StageCompute(split(trace(model), [["node2", "node3", "node4"]]), 0, models.cross_entropy)
    tokens, labels = torch.tensor([1, 5, 9]), torch.tensor([2, 0, 7])

    def loss_of(version: int) -> float:
        loss: float = stage.forward(stage.enter(version, tokens, labels), version=version).values["loss"]
        stage.backward(Packet(version, {}))
        return loss

    def step() -> None:
        with torch.no_grad():
            for parameter in stage.parameters.values():
                parameter.mul_(1.5)

    stage.weights.advance(step, needed_from=0)
    for version, scale in ((1, 1.5), (0, 1.0)):
        scaled = {name: value * scale for name, value in whole.items()}
        expected = models.cross_entropy(torch.func.functional_call(model, scaled, (tokens,)), labels)
        assert loss_of(version) == pytest.approx(float(expected), abs=1e-6)
    for name, parameter in stage.part.module.named_parameters():
        assert parameter is stage.parameters[name], "the module has its own parameters again"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([["node2"], ["node3", "node99"]], "node99, but the model has 4 layers"),
        ([["node2"], ["node3"]], "lacks node4|another model"),
        ([["node2", "node3"], ["node3", "node4"]], "node3 in two stages"),
        ([["node2", "node4"], ["node3"]], "must not come before what it reads"),
        ([["node2", "node3", "node4"], []], "stage 1 of the plan has no layers"),
    ],
)
def test_a_plan_that_does_not_fit_the_model_is_refused(stages: list[list[str]], message: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(PlanError, match=message):
        split(trace(model), stages)
