"""What a CacheCluster says of Alluxio, which is told of what is cached."""

import pytest

from tdcs.api import names
from tdcs.api.conditions import EXPORTING, MASTER_AWAY, MASTER_FULL, Finding
from tdcs.decide.export_standing import exported
from tdcs.model.export_view import ExportView

GIB = 1 << 30
ROOM = ExportView(paths=1000, most=200_000, share=66_333, heap_bytes=GIB // 2)
FULL = ExportView(paths=199_999, most=200_000, share=0, heap_bytes=GIB // 2)


def standing(view: ExportView | None, *, known: str = "", files: int = 500_000) -> Finding | None:
    return exported(view, known=known, patience=180.0, files=files, master="default-master-0")


def silent(seconds: float) -> ExportView:
    return ExportView(silent_since=50.0, silent_at=50.0 + seconds, failure="UNAVAILABLE")


@pytest.mark.parametrize("view", [None, silent(0.0), silent(179.0)], ids=["not asked", "away", "restarts"])
def test_a_master_that_only_restarts_changes_nothing(view: ExportView | None) -> None:
    assert standing(view, known=EXPORTING) is None


def test_a_master_that_stays_away_is_named_with_what_goes_on_without_it() -> None:
    found = standing(silent(180.0), known=EXPORTING)
    assert found is not None
    assert (found.type, found.status, found.reason) == (names.EXPORTED, "False", MASTER_AWAY)
    assert "(UNAVAILABLE)" in found.message
    assert "Loading, reading, jobs, scaling and drains go on without it" in found.message
    assert "See pod default-master-0" in found.message


def test_a_full_master_says_how_many_files_there_are_and_which_heap_takes_them() -> None:
    found = standing(FULL)
    assert found is not None
    assert (found.type, found.status, found.reason) == (names.EXPORTED, "False", MASTER_FULL)
    assert "part of the 500000 files" in found.message
    assert "room for 200000 files and folders" in found.message
    assert "spec.master.jvmOptions to [-Xmx2g]" in found.message


def test_a_heap_that_is_named_is_larger_than_todays() -> None:
    found = standing(FULL, files=10)
    assert found is not None
    assert "-Xmx1g" in found.message


@pytest.mark.parametrize(
    ("paths", "known", "reason"),
    [
        (199_000, EXPORTING, EXPORTING),
        (199_000, MASTER_FULL, MASTER_FULL),
        (189_000, MASTER_FULL, EXPORTING),
    ],
)
def test_a_master_that_was_full_has_room_again_when_it_has_some_for_a_while(
    paths: int, known: str, reason: str
) -> None:
    view = ExportView(paths=paths, most=200_000, share=1, heap_bytes=GIB // 2)
    found = standing(view, known=known)
    assert found is not None
    assert found.reason == reason


def test_a_master_that_answers_and_has_room_is_told_of_all() -> None:
    found = standing(ROOM)
    assert found is not None
    assert (found.type, found.status, found.reason) == (names.EXPORTED, "True", EXPORTING)
