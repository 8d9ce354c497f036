"""Every jar of Alluxio has its argument in docs/explanation/alluxio-jars.md, and its Maven coordinates."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tdcs_local import programs
from tdcs_local.alluxio_jars import COORDINATES
from tdcs_local.packaging.image_packages import maven_artifacts

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "alluxio-jars.md"


def families() -> list[list[str]]:
    """The patterns of each row of the table."""
    table = PAGE.read_text()
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", row) for row in rows]


@pytest.fixture(scope="module")
def lib() -> Path:
    """The folder with the jars."""
    built = programs.cached("alluxio")
    if built is None:
        pytest.skip("Alluxio's jars are not here: the engine tier fetches them")
    return built / "lib"


def test_every_jar_of_alluxio_is_in_one_row_and_every_row_is_of_a_jar(lib: Path) -> None:
    jars = sorted(file.name for file in lib.glob("*.jar"))
    rows = families()
    found = {
        jar: [index for index, row in enumerate(rows) if any(fnmatchcase(jar, one) for one in row)]
        for jar in jars
    }
    assert not {jar: rows for jar, rows in found.items() if len(rows) != 1}
    unused = [one for row in rows for one in row if not any(fnmatchcase(jar, one) for jar in jars)]
    assert not unused


def test_every_jar_of_alluxio_is_known_by_its_coordinates(lib: Path) -> None:
    listed = dict(maven_artifacts((lib / COORDINATES).read_text()))
    assert {file.name for file in lib.glob("*.jar")} <= listed.keys()
