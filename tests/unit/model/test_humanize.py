"""Sizes as people read them."""

import pytest

from tdcs.model.humanize import first_of, human


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (144e9, "134 GiB"),
        (24 * 2**30, "24 GiB"),
        (2**20 - 1, "1 MiB"),
        (99.96 * 2**20, "100 MiB"),
    ],
)
def test_sizes_are_short(size: float, text: str) -> None:
    assert human(int(size)) == text


@pytest.mark.parametrize(
    ("names", "count", "text"),
    [
        ([], None, ""),
        (["a", "b"], None, "a, b"),
        (["a", "b", "c"], None, "a, b and 1 other"),
        (["a", "b"], 9, "a, b and 7 others"),
    ],
)
def test_of_many_names_the_first_are_written_and_the_others_counted(
    names: list[str], count: int | None, text: str
) -> None:
    assert first_of(names, most=2, count=count) == text
