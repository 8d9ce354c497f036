"""Writes which fields a pod template has, by the models of the Kubernetes client; `python -m` this renews the file.

Only names are kept. What a field may hold is for the API server to say, whose version may know more values.
"""

import json
import re
from pathlib import Path
from typing import Any

from kubernetes import client

FILE = Path(__file__).parents[3] / "operator/tdcs/api/pod_fields.json"

_MODEL = re.compile(r"^(?P<many>List\[)?V1(?P<name>\w+?)\]?$")


def pod_fields() -> dict[str, dict[str, Any]]:
    """The fields of each type below a pod's spec: of an object the name of its type, of a list of objects that name in
    a list, of all else nothing."""
    found: dict[str, dict[str, Any]] = {}
    ahead = ["PodSpec"]
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        model = getattr(client, f"V1{name}")
        fields: dict[str, Any] = {}
        for attribute, spelling in model.attribute_map.items():
            kind = _MODEL.match(model.openapi_types[attribute])
            fields[spelling] = "" if kind is None else [kind["name"]] if kind["many"] else kind["name"]
            if kind is not None:
                ahead.append(kind["name"])
        found[name] = dict(sorted(fields.items()))
    found["ObjectMeta"] = dict.fromkeys(sorted(client.V1ObjectMeta.attribute_map.values()), "")
    return dict(sorted(found.items()))


def text() -> str:
    return json.dumps(pod_fields(), separators=(",", ":")).replace("},", "},\n") + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
