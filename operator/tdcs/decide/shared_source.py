"""Whether a Dataset may read the source of another namespace's Dataset, and which source that is.

The owner says so in `spec.sharedWith`, and in nothing else: no status, volume or annotation grants anything. Keys and
rules of the CacheCluster count for the owner's namespace, which chose the source.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tdcs.api.dataset import Dataset
from tdcs.api.dataset_source import DatasetRef, SourceSpec
from tdcs.api.sharing import SharedWith
from tdcs.decide.problem import RETRY_LATER, RETRY_SOON, Refusal
from tdcs.decide.source_rules import NAMESPACE_LABEL

_NOT_SHARED: Final = "NotShared"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedSource:
    """The source that a Dataset reads.

    Attributes:
        spec: with the owner's URI, options and Secret where it is another's.
        namespace: whose keys and rules count.
        within: folders and files that are granted; empty: all.
    """

    spec: SourceSpec
    namespace: str
    within: tuple[str, ...] = ()


def used_source(
    dataset: Dataset, *, namespace: str, labels: Mapping[str, str] | None, owner: Dataset | None
) -> UsedSource | Refusal:
    """The source of a Dataset, or why the Dataset may not use it.

    Args:
        namespace, labels: of the Dataset; labels are None while they are not known.
        owner: the Dataset that `spec.source.datasetRef` names; None where there is none, or it is being deleted.
    """
    source = dataset.spec.source
    reference = source.dataset_ref
    if reference is None:
        return UsedSource(spec=source, namespace=namespace)
    granted = (
        _granted(owner.spec.shared_with, namespace=namespace, labels=labels) if owner is not None else None
    )
    # The same sentence where there is none: whether another namespace has a Dataset is nobody's business.
    if owner is None or granted is None:
        if (
            owner is not None
            and labels is None
            and any(grant.namespace_selector for grant in owner.spec.shared_with)
        ):
            text = f"the labels of namespace {namespace} are not known yet, by which {_title(reference)} is shared"
            return Refusal(reason=_NOT_SHARED, message=text, retry_after=RETRY_SOON)
        return _refused(
            f"{_title(reference)} is not shared with namespace {namespace}: ask its owner to name the namespace in "
            "spec.sharedWith of that Dataset"
        )
    if owner.spec.source.dataset_ref is not None:
        return _refused(f"{_title(reference)} reads another one's source itself: name that one")
    settings = {
        "bandwidth": source.bandwidth,
        "check_interval": source.check_interval,
        "loss_percent": source.loss_percent,
    }
    return UsedSource(
        spec=owner.spec.source.model_copy(update=settings), namespace=reference.namespace, within=granted
    )


def _granted(
    grants: Iterable[SharedWith], *, namespace: str, labels: Mapping[str, str] | None
) -> tuple[str, ...] | None:
    """The paths granted to a namespace, empty for all; None without a grant."""
    mine = [grant for grant in grants if _names(grant, namespace=namespace, labels=labels)]
    if not mine:
        return None
    if any(not grant.paths for grant in mine):
        return ()
    return tuple(sorted({path.strip("/") for grant in mine for path in grant.paths}))


def _names(grant: SharedWith, *, namespace: str, labels: Mapping[str, str] | None) -> bool:
    if namespace in grant.namespaces:
        return True
    selector = grant.namespace_selector
    if selector is None or labels is None:
        return False
    return selector.selects({**labels, NAMESPACE_LABEL: namespace})


def _title(reference: DatasetRef) -> str:
    return f"Dataset {reference.namespace}/{reference.name} (spec.source.datasetRef)"


def _refused(message: str) -> Refusal:
    return Refusal(reason=_NOT_SHARED, message=message, permanent=True, retry_after=RETRY_LATER)
