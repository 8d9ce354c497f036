"""The generated source of an artifact that has none, in one sentence each."""

from pathlib import Path

import pytest

from tdcs_train.artifacts import ArtifactError, generated_source
from tdcs_train.artifacts.source import source_name


def test_the_file_is_named_as_the_library_is() -> None:
    assert source_name("model-0123.so") == "model-0123.source.txt"


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no artifact: its manifest"):
        generated_source(tmp_path)
