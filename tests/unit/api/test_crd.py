"""The committed CRDs are those that the models give, and they explain themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from tests.support.generators import pod_fields

from tdcs.api.base import Model
from tdcs.api.dataset import Dataset
from tdcs.cli import crd_documents
from tdcs.cli.crd_schema import structural
from tdcs.model.humanize import wrong_fields

CHECKOUT = Path(__file__).parents[3]


def test_the_committed_files_are_what_the_models_give() -> None:
    committed = {path.name: path.read_text() for path in (CHECKOUT / "crds").glob("*.yaml")}
    assert committed == crd_documents.manifests(), "run: tdcs crds --output crds"


def test_the_fields_of_a_pod_are_those_that_the_kubernetes_client_knows() -> None:
    assert pod_fields.FILE.read_text() == pod_fields.text(), "run: make crds"


def test_writing_twice_changes_nothing(tmp_path: Path) -> None:
    assert len(list(crd_documents.write(folder=tmp_path))) == len(crd_documents.KINDS)
    assert list(crd_documents.write(folder=tmp_path)) == []


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field below a schema with its path."""
    for name, found in schema.get("properties", {}).items():
        yield f"{path}.{name}", found
        yield from fields(found, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], f"{path}[]")


@pytest.mark.parametrize("kind", crd_documents.KINDS, ids=lambda kind: kind.model.__name__)
def test_every_field_is_described_and_has_one_type(kind: crd_documents.DocumentedKind) -> None:
    version = crd_documents.definition(kind)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    for path, found in fields(schema, kind.model.__name__):
        if path.endswith(".metadata"):
            continue
        if not path.endswith(".template.spec.containers[].name"):
            assert found.get("description"), f"{path} has no description"
        open_field = found.get("x-kubernetes-preserve-unknown-fields") and ".template." in path
        assert "type" in found or found.get("x-kubernetes-int-or-string") or open_field, f"{path} has no type"
    assert version["subresources"].get("status") == ({} if "status" in kind.model.model_fields else None)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in crd_documents.KINDS if "status" in kind.model.model_fields],
    ids=lambda kind: kind.model.__name__,
)
def test_the_server_invents_no_status(kind: crd_documents.DocumentedKind) -> None:
    schema = crd_documents.definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    status = schema["properties"]["status"]
    assert not [path for path, found in fields(status, "status") if "default" in found]


def test_a_model_that_contains_itself_is_refused() -> None:
    class Branch(Model):
        """Recursive."""

        branches: list["Branch"]

    Branch.model_rebuild(_types_namespace={"Branch": Branch})
    with pytest.raises(ValueError, match="cannot be recursive"):
        structural(Branch)


def test_a_keyword_that_the_server_would_refuse_is_refused_here() -> None:
    class Odd(BaseModel):
        """A tuple gives prefixItems."""

        pair: tuple[int, str]

    with pytest.raises(ValueError, match="prefixItems"):
        structural(Odd)


def test_models_tolerate_fields_of_a_newer_version() -> None:
    spec = {"source": {"uri": "s3://bucket", "mirrors": ["s3://other"]}, "quota": "1Gi"}
    assert Dataset.model_validate({"spec": spec}).spec.source.uri == "s3://bucket"


def test_an_eviction_policy_in_the_wrong_case_is_answered_with_the_names_of_the_policies() -> None:
    """By the API server through the schema, and by the operator where an older schema let it pass."""
    kind = next(kind for kind in crd_documents.KINDS if kind.model is Dataset)
    schema = crd_documents.definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    policy = dict(fields(schema, "Dataset"))["Dataset.spec.eviction.policy"]
    assert "pattern" not in policy, "the server would quote it"
    (rule,) = policy["x-kubernetes-validations"]
    named = "LRU, LRFU, NextUse, Pin or Timed"
    assert named in rule["message"]
    spec = {"source": {"uri": "s3://bucket"}, "eviction": {"policy": "pin"}}
    with pytest.raises(ValidationError, match=named) as error:
        Dataset.model_validate({"spec": spec})
    assert "pattern" not in wrong_fields(error.value)
    for accepted in ("Pin", "LRFU", "Home2"):
        assert Dataset.model_validate({"spec": {**spec, "eviction": {"policy": accepted}}})


@pytest.mark.parametrize("plural", ["cacheclusters", "datasets", "preloads", "trainingjobs"])
def test_kubectl_get_wide_says_why_and_with_a_reason_where_the_state_is_a_word(plural: str) -> None:
    (kind,) = (kind for kind in crd_documents.KINDS if kind.plural == plural)
    columns = {column.name for column in kind.columns}
    assert "Message" in columns
    assert "Reason" in columns or "State" not in columns


def schema_of(kind: crd_documents.DocumentedKind) -> dict[str, Any]:
    schema: dict[str, Any] = crd_documents.definition(kind)["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    return schema


def test_no_regular_expression_is_shown_for_what_pod_templates_and_node_selectors_hold() -> None:
    shown = [
        path
        for kind in crd_documents.KINDS
        for path, schema in fields(schema_of(kind), kind.model.__name__)
        if "pattern" in schema and ("replicaSpecs" in path or "nodeSelector" in path)
    ]
    # The claims of volumes: the API server bounds what rules may cost.
    assert [path for path in shown if ".ephemeral." not in path] == []


def test_fields_of_pod_templates_have_the_kinds_of_values_that_pods_have() -> None:
    job = next(kind for kind in crd_documents.KINDS if kind.model.__name__ == "TrainingJob")
    found = dict(fields(schema_of(job), ""))
    pod = ".spec.replicaSpecs[].template.spec"
    types = {
        "containers[].args": "array",
        "containers[].workingDir": "string",
        "containers[].ports[].containerPort": "integer",
        "hostNetwork": "boolean",
        "securityContext.runAsUser": "integer",
        "volumes[].csi.volumeAttributes": "object",
    }
    assert {field: found[f"{pod}.{field}"].get("type") for field in types} == types
    assert found[f"{pod}.containers[].args"]["items"] == {"type": "string"}
    for field in ("httpGet.port", "tcpSocket.port"):  # a number or a name
        assert "type" not in found[f"{pod}.containers[].livenessProbe.{field}"]
    assert "name" in found[f"{pod}.volumes"]["items"]["required"]
