"""What a user applies from deploy/examples is what the models understand."""

from pathlib import Path

import pytest
from tests.support.documents import documents

from tdcs.cli import crd_documents

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "examples"
MODELS = {kind.model.__name__: kind.model for kind in crd_documents.KINDS}
OBJECTS = [
    (path.name, obj)
    for path in sorted(EXAMPLES.glob("*.yaml"))
    for obj in documents(path.read_text())
    if obj["kind"] in MODELS
]


@pytest.mark.parametrize(("name", "obj"), OBJECTS, ids=[name for name, _ in OBJECTS])
def test_an_example_has_known_fields_with_good_values(name: str, obj: dict[str, object]) -> None:
    kind = str(obj["kind"])
    understood = MODELS[kind].model_validate(obj).model_dump(by_alias=True, exclude_unset=True)
    given = obj["spec"]
    assert understood["spec"].keys() == given.keys()  # type: ignore[attr-defined]


def test_every_kind_of_data_has_an_example() -> None:
    assert {"Dataset", "Preload", "TrainingJob"} <= {str(obj["kind"]) for _, obj in OBJECTS}
