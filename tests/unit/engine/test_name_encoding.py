"""The encoding of names that Alluxio cannot hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.alluxio.exported_files import for_alluxio

HARD = st.text(alphabet=st.sampled_from("?\\/a\uf000\uf03f\uf05c\uf001\ue000\ue400🐈\n")) | st.text()


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("plain/file.jpg", "plain/file.jpg"),
        ("what?", "what\uf03f"),
        ("back\\slash", "back\uf05cslash"),
        ("private\uf03f", "private\uf000\uf03f"),
        ("\uf000?", "\uf000\uf000\uf03f"),
        ("cat-\U0001f408", "cat-\ue03d\ue408"),
        ("private\ue03d\ue408", "private\uf000\ue03d\uf000\ue408"),
    ],
)
def test_a_name_is_encoded_with_what_alluxio_can_hold(name: str, encoded: str) -> None:
    assert for_alluxio(name) == encoded


@given(name=HARD)
def test_every_name_can_be_held(name: str) -> None:
    encoded = for_alluxio(name)
    assert "?" not in encoded
    assert "\\" not in encoded
    assert all(character <= "\uffff" for character in encoded)


@given(one=HARD, other=HARD)
def test_no_two_names_are_encoded_alike(one: str, other: str) -> None:
    assert (for_alluxio(one) == for_alluxio(other)) == (one == other)
