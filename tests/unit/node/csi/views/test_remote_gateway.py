"""Where a view has its gateway to the FUSE client."""

import pytest
from tests.unit.node.csi.views.builders import listed, manifest_of

from tdcs.node.csi.views.remote_gateway import gateway_folder


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["a", "b"], b""),
        (["0/x.jpg", "1/x.jpg"], b"0"),
        (["README", "0/x.jpg", "1/x.jpg"], b"0"),
        (["README", "train/labels", "train/0/x.jpg"], b"train/0"),
        ([".tdcs/x"], None),
        ([".tdcs"], None),
        ([".tdcs", "0/x"], b"0"),
        (["0/.tdcs", "1/x"], b"1"),
        (["0/.tdcs/x", "1/x"], b"1"),
    ],
)
def test_the_gateway_is_where_no_program_takes_it_for_data(paths: list[str], folder: bytes | None) -> None:
    assert gateway_folder(manifest_of(*(listed(path, 1) for path in paths))) == folder
