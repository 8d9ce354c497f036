"""The root that these tests run in is the one of the image `train-pytorch`."""

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed


def test_pytorch_is_the_release_that_the_package_asks_for_with_gloo_and_fast_matrix_products() -> None:
    assert torch.__version__.split("+")[0] >= "2.6"
    assert torch.distributed.is_gloo_available()
    assert "openblas" in os.readlink("/etc/alternatives/libblas.so.3-x86_64-linux-gnu")


def test_the_checkout_is_read_only_and_only_a_loopback_interface_is_there() -> None:
    with pytest.raises(OSError, match="Read-only"):
        (Path(__file__).parent / "written").touch()
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
