"""Made datasets: the same parameters give the same bytes, forever."""

import hashlib

from deploy.images.store.tdcs_store.content import CHUNK, File, content, plan
from hypothesis import given
from hypothesis import strategies as st


def _bytes(seed: str, path: str, size: int) -> bytes:
    return b"".join(content(seed=seed, file=File(path=path, size=size)))


def test_the_bytes_of_a_seed_never_change() -> None:
    made = _bytes("1", "000/000000.bin", CHUNK + 10)
    assert (
        hashlib.sha256(made).hexdigest() == "3d03da680f020c6c2d2aca0332ca47d263dae6cd0a893e421d79e57ddd950d98"
    )


@given(st.integers(0, 3 * CHUNK))
def test_a_file_has_exactly_its_size(size: int) -> None:
    assert len(_bytes("s", "f", size)) == size


def test_seed_and_path_and_chunk_all_give_other_bytes() -> None:
    whole = _bytes("1", "a", 2 * CHUNK)
    assert len({whole[:CHUNK], whole[CHUNK:], _bytes("2", "a", CHUNK), _bytes("1", "b", CHUNK)}) == 4


@given(st.integers(1, 300), st.integers(0, 1000), st.integers(0, 1000), st.text(max_size=5))
def test_a_plan_has_the_files_asked_for_in_the_sizes_asked_for(
    files: int, low: int, more: int, seed: str
) -> None:
    made = list(plan(files=files, sizes=(low, low + more), seed=seed))
    assert len({file.path for file in made}) == files
    assert all(low <= file.size <= low + more for file in made)
    assert made == list(plan(files=files, sizes=(low, low + more), seed=seed))


def test_sizes_spread_over_the_whole_range() -> None:
    sizes = [file.size for file in plan(files=3000, sizes=(0, 9), seed="1")]
    assert all(200 < sizes.count(size) < 400 for size in range(10))


def test_a_folder_has_at_most_a_thousand_files() -> None:
    folders = [file.path.split("/")[0] for file in plan(files=2500, sizes=(1, 1), seed="1")]
    assert [folders.count(f"{n:03d}") for n in range(3)] == [1000, 1000, 500]
