"""What holds for all unit tests."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine says nothing about a rule: no property fails because its examples took long. And a run says something
# about the change that it tests: the examples are the same each time. `--hypothesis-profile=others` looks for others.
# They are few in each change's run, and many with TDCS_DEEP; a test that needs more to meet its rare cases says so.
settings.register_profile(
    "tdcs",
    deadline=None,
    derandomize=True,
    max_examples=400 if os.environ.get("TDCS_DEEP") else 40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("others", settings.get_profile("tdcs"), derandomize=False)
settings.load_profile("tdcs")


@pytest.fixture(autouse=True)
def recursion_limit() -> Iterator[None]:
    """A Kubernetes client lets its process recurse deeper; here that ends with the test that made it."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)
