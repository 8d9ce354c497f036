"""A job's datasets in words: how much of them is cached and where, or why they cannot be read. Pure."""

from collections.abc import Mapping

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.controllers.humanize import human
from tdcs.controllers.trainingjob.data_location import copies_of
from tdcs.controllers.trainingjob.decision import why_not_mounted
from tdcs.controllers.validation import explain_invalid
from tdcs.kube.api import Object
from tdcs.policy.scoring import merged

NAMED_NODES = 8
"""Nodes of a dataset that are named, those with the most bytes."""


def readable(raw: Mapping[str, Object]) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The Datasets that can be understood, and of the others what is wrong."""
    found, broken = {}, {}
    for name, obj in raw.items():
        try:
            found[name] = Dataset.model_validate(obj)
        except ValidationError as error:
            broken[name] = f"{name}: {explain_invalid(error)}"
    return found, broken


def described(name: str, dataset: Dataset | None, *, reads: str | None = None) -> str:
    if dataset is None:
        return f"{name}: there is no such Dataset in the job's namespace; create it, or correct spec.datasets"
    why = why_not_mounted(dataset)
    if dataset.status is None:
        return f"{name}: {why}"
    offered = merged(list(copies_of(dataset).values()))
    cached = offered.node_bytes if offered is not None else {}
    ranked = sorted(
        ((node, size) for node, size in cached.items() if size > 0), key=lambda item: (-item[1], item[0])
    )
    named = [f"{human(count)} on {node}" for node, count in ranked[:NAMED_NODES]]
    if len(ranked) > NAMED_NODES:
        named.append(f"less or as much on {len(ranked) - NAMED_NODES} more")
    where = ", ".join(named) or "nowhere"
    total = dataset.status.total_bytes
    copies = [copy.id for copy in dataset.status.copies if copy.id != names.PRELOADED_COPY]
    which = f"; {len(copies)} copies, the job reads copy {reads}" if len(copies) > 1 and reads else ""
    unread = f"; it cannot be read now: {why}" if why else ""
    return f"{name}: {human(total)}, {dataset.status.cached_ratio:.0%} of it cached: {where}{which}{unread}"
