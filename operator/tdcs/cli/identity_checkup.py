"""Whether the ServiceAccounts that Datasets are read as can have keys of their stores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster
from tdcs.api.dataset_source import SourceSpec
from tdcs.api.source_rules import IdentityRule
from tdcs.decide.problem import Refusal
from tdcs.decide.source_rules import judge_source
from tdcs.decide.workload_identity import identity_remedy, plan_exchange
from tdcs.model.kube_objects import Object

RIGHTS_OF_OPERATOR: Final = (("get", ""), ("create", "token"))
"""What the operator needs on an account: a verb, and a subresource of the ServiceAccount."""

REASONS: Final = frozenset(
    {"IdentityForbidden", "IdentityNotConfigured", "IdentityNotFound", "IdentityNotNamed"}
)
"""Reasons of Datasets' conditions of which this module says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAnswer:
    """What was read of a ServiceAccount.

    Attributes:
        account: None where there is none, or it may not be read.
        readable: whether the user may read it.
        missing_rights: those of `RIGHTS_OF_OPERATOR` that the operator lacks; None: the user may not ask.
    """

    account: Object | None = None
    readable: bool = True
    missing_rights: tuple[tuple[str, str], ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What was read of the ServiceAccounts that Datasets name.

    Attributes:
        operator: the operator's own, as NAMESPACE:NAME.
        answers: by name.
    """

    operator: str = f"{names.SYSTEM_NAMESPACE}:{names.OPERATOR_ACCOUNT}"
    answers: Mapping[str, AccountAnswer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFinding:
    """One sentence about an account, and the Datasets that it is about."""

    state: Literal["lacks", "unknown"]
    text: str
    datasets: tuple[str, ...]


def accounts_of(datasets: Sequence[Object]) -> list[str]:
    """The ServiceAccounts that Datasets name."""
    return sorted({account for dataset in datasets if (account := _account_of(dataset))})


def identity_checkup(
    accounts: Accounts,
    *,
    datasets: Sequence[Object],
    clusters: Sequence[Object] | None,
    namespace: str,
    labels: Mapping[str, str] | None,
) -> Iterator[IdentityFinding]:
    """What accounts lack for the Datasets that name them.

    Args:
        clusters: CacheClusters, whose rules say how identities of stores are had; None: they are unknown.
        namespace, labels: of the Datasets; labels are None while they are unknown.
    """
    for name in accounts_of(datasets):
        users = [dataset for dataset in datasets if _account_of(dataset) == name]
        answer = accounts.answers.get(name, AccountAnswer(readable=False, missing_rights=None))
        titles = tuple(sorted(str(dataset["metadata"]["name"]) for dataset in users))
        of = f"Dataset {', '.join(titles[:5])}"
        if answer.readable and answer.account is None:
            text = (
                f"there is no ServiceAccount {name}, which {of} names: kubectl create serviceaccount {name} -n "
                f"{namespace}"
            )
            yield IdentityFinding(state="lacks", text=text, datasets=titles)
            continue
        if answer.account is None:
            text = (
                f"whether ServiceAccount {name}, which {of} names, has its annotations is unknown: you may not get "
                f"serviceaccounts in namespace {namespace}"
            )
            yield IdentityFinding(state="unknown", text=text, datasets=titles)
        else:
            yield from _unfit(users, answer.account, clusters=clusters, namespace=namespace, labels=labels)
        yield from _rights(
            answer, name=name, of=of, operator=accounts.operator, namespace=namespace, titles=titles
        )


def _unfit(
    users: Sequence[Object],
    account: Object,
    *,
    clusters: Sequence[Object] | None,
    namespace: str,
    labels: Mapping[str, str] | None,
) -> Iterator[IdentityFinding]:
    """What annotations or the rules of the CacheCluster do not say, each sentence once."""
    title = f"{namespace}/{account['metadata']['name']}"
    titles_by_sentence: dict[tuple[Literal["lacks", "unknown"], str], list[str]] = {}
    for dataset in users:
        try:
            source = SourceSpec.model_validate(dataset["spec"]["source"])
        except ValidationError:
            continue  # its condition says what is wrong with it
        cluster = names.cache_cluster_of(dataset)
        has_rules, rule = _identity_rule(source, cluster, clusters, namespace=namespace, labels=labels)
        annotations = account["metadata"].get("annotations") or {}
        plan = plan_exchange(source, annotations, rule, account=title, cluster=cluster)
        if not isinstance(plan, Refusal):
            continue
        state: Literal["lacks", "unknown"] = "lacks"
        text = plan.message
        if not has_rules and plan.reason == "IdentityNotConfigured":
            state, text = (
                "unknown",
                f"the rules of CacheCluster {cluster} are not known; unless they say so: {plan.message}",
            )
        titles_by_sentence.setdefault((state, text), []).append(str(dataset["metadata"]["name"]))
    for (state, text), titles in titles_by_sentence.items():
        text = f"Dataset {', '.join(sorted(titles)[:5])}: {text}"
        yield IdentityFinding(state=state, text=text, datasets=tuple(titles))


def _rights(
    answer: AccountAnswer, *, name: str, of: str, operator: str, namespace: str, titles: tuple[str, ...]
) -> Iterator[IdentityFinding]:
    remedy = identity_remedy(operator=operator, namespace=namespace, account=name)
    if answer.missing_rights is None:
        text = (
            f"whether the operator may create tokens of ServiceAccount {name} is unknown: you may not create "
            f"localsubjectaccessreviews in namespace {namespace} (ClusterRole admin may). This allows it: {remedy}"
        )
        yield IdentityFinding(state="unknown", text=text, datasets=titles)
    elif answer.missing_rights:
        lacking = " and ".join(_RIGHT_WORDS[right] for right in answer.missing_rights)
        text = f"the operator may not {lacking} ServiceAccount {name}, which {of} names: {remedy}"
        yield IdentityFinding(state="lacks", text=text, datasets=titles)


_RIGHT_WORDS: Final = {("get", ""): "read", ("create", "token"): "create tokens of"}


def _identity_rule(
    source: SourceSpec,
    cluster: str,
    clusters: Sequence[Object] | None,
    *,
    namespace: str,
    labels: Mapping[str, str] | None,
) -> tuple[bool, IdentityRule | None]:
    """Whether the rules are known, and what they say of identities of a source's store."""
    obj = next((candidate for candidate in clusters or () if candidate["metadata"]["name"] == cluster), None)
    if obj is None:
        return clusters is not None, None
    try:
        spec = CacheCluster.model_validate(obj).spec
    except ValidationError:
        return False, None
    verdict = judge_source(
        rules=spec.sources,
        shared_folders=spec.source_folders,
        namespace=namespace,
        labels=labels,
        uri=source.uri,
        endpoint=source.endpoint,
        path_style=source.options.path_style,
        cluster=cluster,
    )
    return labels is not None, verdict.identity


def _account_of(dataset: Object) -> str:
    source = (dataset.get("spec") or {}).get("source") or {}
    return str(source.get("serviceAccountName") or "")
