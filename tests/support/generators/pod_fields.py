"""Writes which fields a pod template has, by the models of the Kubernetes client; `python -m` this renews the file.

Names, kinds of values (texts, numbers, truths) and what is required are kept, which stay as they are from version to
version. Which values a field may hold is for the API server to say, whose version may know more of them.
"""

import json
import re
from pathlib import Path
from typing import Any

from kubernetes import client

FILE = Path(__file__).parents[3] / "operator/tdcs/api/pod_fields.json"

_TYPE = re.compile(r"^(?P<many>List\[|Dict\[str, )?(?P<name>\w+)\]?$")

_PLAIN = {"str": "string", "int": "integer", "bool": "boolean"}

_QUANTITIES = frozenset({"divisor", "limits", "overhead", "requests", "sizeLimit"})
"""Texts in the client, and numbers as well in the API."""


def pod_fields() -> dict[str, dict[str, Any]]:
    """The fields of each type below a pod's spec. Of an object the name of its type, of a text, a number or a truth
    what JSON Schema calls it, of a list of one of these that in a list, of texts by name that in an object, of all else
    nothing. A name that ends in "!" is that of a required field."""
    fields_by_model: dict[str, dict[str, Any]] = {}
    ahead = ["PodSpec"]
    while ahead:
        name = ahead.pop()
        if name in fields_by_model:
            continue
        model = getattr(client, name if name.startswith("CoreV1") else f"V1{name}")
        required = {
            model.attribute_map.get(plain, plain)
            for plain, field in model.model_fields.items()
            if field.is_required()
        }
        fields: dict[str, Any] = {}
        for attribute, spelling in model.attribute_map.items():
            inner = _inner(spelling, model.openapi_types[attribute])
            fields[f"{spelling}!" if spelling in required else spelling] = inner
            held = inner[0] if isinstance(inner, list) else inner
            if isinstance(held, str) and held[:1].isupper():
                ahead.append(held)
        fields_by_model[name] = dict(sorted(fields.items()))
    fields_by_model["ObjectMeta"] = dict.fromkeys(sorted(client.V1ObjectMeta.attribute_map.values()), "")
    return dict(sorted(fields_by_model.items()))


def _inner(field: str, type_: str) -> Any:
    kind = _TYPE.match(type_)
    if kind is None or field in _QUANTITIES:
        return ""
    name = kind["name"].removeprefix("V1")
    if not name[:1].isupper():
        name = _PLAIN.get(name, "")
    if not kind["many"] or not name:
        return name
    return [name] if kind["many"] == "List[" else {"": name}


def text() -> str:
    return json.dumps(pod_fields(), separators=(",", ":")).replace("},", "},\n") + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
