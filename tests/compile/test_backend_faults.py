"""Back ends of users that fail: the answer is a sentence that names the back end and the part."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.compile.models import Network

from tdcs_train.artifacts.targets import find_target
from tdcs_train.backends import Backend, GeneratedCode, Region, Row, c_file, c_module
from tdcs_train.compile.library import write_library
from tdcs_train.compile.model_file import read_onnx
from tdcs_train.compile.model_import import import_model
from tdcs_train.compile.partition import Partition, partition
from tdcs_train.errors import InputError


def raises(_: object) -> Any:
    raise KeyError("lost")


def accepts(_: object) -> None:
    return None


def broken_code(region: Region) -> GeneratedCode:
    text = c_file(region, ["this is no C;"])
    return GeneratedCode(module=c_module(region, text), text=text)


def backend(
    *, check: Callable[[Any], Any] = accepts, codegen: Callable[[Region], Any] = broken_code
) -> Backend:
    def table() -> Sequence[Row]:
        from tvm.relax.dpl import is_op, wildcard

        return (Row(name="mul", pattern=is_op("relax.multiply")(wildcard(), wildcard()), check=check),)

    return Backend(name="device", version="1", table=table, codegen=codegen)


def parts_with(device: Backend, tmp_path: Path) -> Partition:
    net = Network()
    onnx.save(net.model({"a": [4], "b": [4]}, [net.op("Exp", net.op("Mul", "a", "b"))]), tmp_path / "m.onnx")
    module = import_model(read_onnx(tmp_path / "m.onnx"), {}).module
    return partition(module, backends=[device], weights=0)


def fails() -> Sequence[Row]:
    raise RuntimeError("no device\nsecond line")


def not_rows() -> Sequence[Any]:
    return ["mul"]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (fails, "the back end device fails in its table: RuntimeError: no device; repair its package"),
        (not_rows, "the table of the back end device has a str; it must have only Rows"),
    ],
)
def test_a_table_that_fails_is_named(table: Callable[[], Any], reason: str, tmp_path: Path) -> None:
    device = Backend(name="device", version="1", table=table, codegen=broken_code)
    with pytest.raises(InputError) as caught:
        parts_with(device, tmp_path)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (raises, "the back end device fails in its check of row mul: KeyError: 'lost'; repair its package"),
        (
            lambda _: False,
            "the check of the row mul of the back end device gave False; it must give None or a sentence",
        ),
        (
            lambda _: 1,
            "the check of the row mul of the back end device gave 1; it must give None or a sentence",
        ),
    ],
)
def test_a_check_that_fails_or_gives_no_sentence_is_named(
    check: Callable[[Any], Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        parts_with(backend(check=check), tmp_path)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("codegen", "reason"),
    [
        (raises, "the back end device fails in its code generator: KeyError: 'lost'; repair its package"),
        (
            accepts,
            "the code generator of the back end device gave a NoneType; it must give a GeneratedCode",
        ),
    ],
)
def test_a_code_generator_that_fails_or_gives_no_code_is_named(
    codegen: Callable[[Region], Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        parts_with(backend(codegen=codegen), tmp_path)
    assert str(caught.value) == reason


def test_code_that_does_not_compile_is_named_with_its_back_end(tmp_path: Path) -> None:
    parts = parts_with(backend(), tmp_path)
    with pytest.raises(
        InputError, match=r"the library, with code of device, cannot be compiled or linked: .*error"
    ):
        write_library(
            tmp_path / "model.so", partition=parts, processor=find_target("x86-64"), backends=[backend()]
        )
