"""Models of torch that `tdcs-train compile` is given: a sentence that says how they become ONNX files."""

from pathlib import Path

import pytest

from tdcs_train.compile.model_file import read_model
from tdcs_train.errors import InputError

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.linear = nn.Linear(size, 2)
    def forward(self, x):
        return self.linear(x)

module = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
scripted = torch.jit.script(Net())
exported = torch.export.export(Net(), (torch.zeros(1, 4),))
weights = module.state_dict()
def make():
    return Net()
def make_of(size):
    return Net(size)
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("module", "Sequential of torch"),
        ("Net", "Net of torch"),
        ("make", "Net of torch"),
        ("scripted", "RecursiveScriptModule of torch"),
        ("exported", "ExportedProgram of torch"),
    ],
)
def test_a_model_of_torch_is_named_with_the_way_to_an_onnx_file(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SCRIPT)
    with pytest.raises(InputError) as refused:
        read_model(f"{tmp_path}/net.py:{name}")
    assert f"net.py:{name} is of the type {kind}: a model is an onnx.ModelProto or a tvm.IRModule" in str(
        refused.value
    )
    assert "torch.onnx.export(model, example_inputs, 'model.onnx')" in str(refused.value)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SCRIPT)
    with pytest.raises(InputError, match=r"is of the type OrderedDict: a model is an onnx\.ModelProto"):
        read_model(f"{tmp_path}/net.py:weights")
    with pytest.raises(InputError, match=r"without arguments \(missing a required argument: 'size'\)"):
        read_model(f"{tmp_path}/net.py:make_of")
