"""Names fit what Kubernetes allows; sizes are read as users write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils import quantity as reference

from tdcs.api import names
from tdcs.api.quantities import parse_quantity, to_bytes

NODE = st.from_regex(
    r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?){0,6}", fullmatch=True
)


@given(node=NODE, cluster=st.from_regex(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?", fullmatch=True))
def test_a_worker_of_any_node_has_a_name_that_fits(node: str, cluster: str) -> None:
    name = names.worker_set_name(cluster=cluster, node=node)
    assert len(name) <= 52
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)


@given(one=NODE, other=NODE)
def test_two_nodes_never_share_a_worker(one: str, other: str) -> None:
    same = names.worker_set_name(cluster="c", node=one) == names.worker_set_name(cluster="c", node=other)
    assert same == (one == other)


def test_a_short_node_name_is_kept() -> None:
    assert names.worker_set_name(cluster="default", node="tdcs-worker2") == "default-worker-tdcs-worker2"


@pytest.mark.parametrize(
    ("written", "size"),
    [("10Gi", 10 * 2**30), ("1.5k", 1500), (7, 7), ("1e3", 1000), ("500M", 500_000_000), ("1Ki", 1024)],
)
def test_a_size_is_read_as_kubernetes_reads_it(written: int | str, size: int) -> None:
    assert to_bytes(written) == size


@pytest.mark.parametrize("written", ["lots", "-1", "10 Gi", "10GB", ""])
def test_what_is_no_size_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="such as 10Gi"):
        to_bytes(written)


@pytest.mark.parametrize("written", ["8Ei", "10E", "9300P", 1 << 63])
def test_what_is_no_64_bit_number_is_refused(written: int | str) -> None:
    with pytest.raises(ValueError, match="sizes must be below 8Ei"):
        to_bytes(written)


@given(
    number=st.from_regex(r"[+-]?([0-9]{1,9}(\.[0-9]{0,4})?|\.[0-9]{1,4})", fullmatch=True),
    suffix=st.sampled_from(
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    )
    | st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True),
)
def test_a_quantity_has_the_value_that_the_official_client_gives_it(number: str, suffix: str) -> None:
    assert parse_quantity(number + suffix) == reference.parse_quantity(number + suffix)


@pytest.mark.parametrize(
    "written", ["NaN", "Infinity", "1_000", "5mi", "5ki", "5K", "1e", "1.2.3", " 1", "1\n", "\u0663", "--1"]
)
def test_what_kubernetes_refuses_is_no_quantity(written: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(written)


def test_a_quantity_of_any_exponent_is_read_in_no_time() -> None:
    with pytest.raises(ValueError, match="sizes must be below 8Ei"):
        to_bytes("1e999999999")
    assert to_bytes("1e-999999999") == 0


def test_no_two_datasets_can_have_one_volume_or_one_claim() -> None:
    """The claim has the Dataset's own name in its own namespace; the volume's name tells both, and neither has dots."""
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b"), ("ab", "c"), ("a", "bc")]
    found = {names.volume_name(namespace=namespace, dataset=name) for namespace, name in pairs}
    assert len(found) == len(pairs)
