"""Files with one TrainingJob, as people write them."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.failures import InputError
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_rules import NAME_LIMIT
from tdcs.cli.input import shown_name
from tdcs.model.humanize import wrong_fields
from tdcs.model.kube_objects import Object

_MOST_BYTES: Final = 2_000_000
"""The API server takes no larger object."""


def read_job(*, path: Path) -> Object:
    """The TrainingJob in a file of YAML or JSON, or on standard input when the path is `-`; other objects may stand
    next to it.

    Raises:
        InputError: the file cannot be read, or does not hold one TrainingJob that can be understood.
    """
    where = shown_name(path)
    try:
        with sys.stdin.buffer if str(path) == "-" else path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{where}: cannot be read ({error.strerror}); give the path of a file with a TrainingJob"
        ) from error
    if len(content) > _MOST_BYTES:
        raise InputError(f"{where}: is longer than an object can be; give a file with one TrainingJob")
    try:
        documents = list(yaml.safe_load_all(content.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is no text in UTF-8; give a TrainingJob in YAML or JSON") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{where}: is not YAML ({reason}); correct the file") from error
    return _one_job(list(_objects(documents)), where=where)


def _objects(documents: list[Any]) -> list[Mapping[str, Any]]:
    """The objects in documents, those in lists of kubectl among them."""
    objects: list[Mapping[str, Any]] = []
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") == "List":
            objects += _objects(list(document.get("items") or ()))
        elif isinstance(document, Mapping):
            objects.append(document)
    return objects


def _one_job(objects: list[Mapping[str, Any]], *, where: str) -> Object:
    jobs = [obj for obj in objects if obj.get("kind") == names.KIND_TRAINING_JOB]
    if not jobs:
        kinds = ", ".join(sorted({str(obj.get("kind")) for obj in objects if obj.get("kind")})[:5])
        content = f"holds {kinds}" if kinds else "holds no Kubernetes object"
        raise InputError(
            f"{where}: {content}, and no TrainingJob; give the file that kubectl apply would get"
        )
    if len(jobs) > 1:
        raise InputError(
            f"{where}: holds {len(jobs)} TrainingJobs; put the one to be planned into its own file"
        )
    job = dict(jobs[0])
    version = str(job.get("apiVersion", ""))
    if version != names.API_VERSION:
        raise InputError(f"{where}: apiVersion is {version or 'missing'}; write {names.API_VERSION}")
    metadata = job.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
    if not re.fullmatch(rf"[a-z]([-a-z0-9]*[a-z0-9])?(?<!.{{{NAME_LIMIT + 1}}})", name):
        raise InputError(
            f"{where}: metadata.name is {name[:80]!r}; it must begin with a letter and be at most {NAME_LIMIT} "
            "lower-case letters, digits and dashes"
        )
    try:
        TrainingJobSpec.model_validate(job.get("spec"))
    except ValidationError as error:
        raise InputError(f"{where}: {wrong_fields(error, under='spec')}; correct these fields") from error
    except RecursionError as error:
        raise InputError(f"{where}: is nested too deeply; correct the templates") from error
    return {**job, "metadata": dict(metadata)}  # type: ignore[arg-type]
