"""Profiles for the tests of plans."""

from pathlib import Path

import pytest

PROFILES = Path(__file__).parent / "profiles"
PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "data" / "pipedream"


@pytest.fixture
def chain() -> Path:
    """A profile of a chain of layers, the last of them with nearly all parameters."""
    return PROFILES / "chain.txt"


@pytest.fixture
def attention() -> Path:
    """A profile with two inputs, tensors that skip layers, unused outputs and a constant."""
    return PROFILES / "attention.txt"


@pytest.fixture
def published() -> Path:
    """The folder of published profiles; skips where it is not."""
    if not PUBLISHED.is_dir():
        pytest.skip(f"the published PipeDream profiles are not in {PUBLISHED.parent.name}/{PUBLISHED.name}")
    return PUBLISHED
