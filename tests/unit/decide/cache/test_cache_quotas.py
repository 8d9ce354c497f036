"""Which quotas of a cache cluster count the data of which namespace."""

import pytest

from tdcs.api.sharing import CacheQuota
from tdcs.decide.cache.cache_quotas import counting, payers, quota_bytes, within_quotas
from tdcs.decide.cache.wants import Want
from tdcs.model.kube_objects import Key, Object

ALL = CacheQuota.model_validate({"name": "all", "bytes": "1Gi"})
GOLD = CacheQuota.model_validate(
    {"name": "gold", "bytes": 1000, "namespaceSelector": {"matchLabels": {"tier": "gold"}}}
)
NAMESPACES: dict[Key, Object] = {
    ("", "rich"): {"metadata": {"name": "rich", "labels": {"tier": "gold"}}},
    ("", "plain"): {"metadata": {"name": "plain", "labels": None}},
}


def test_sizes_are_bytes() -> None:
    assert quota_bytes([ALL, GOLD]) == {"all": 1 << 30, "gold": 1000}
    assert quota_bytes([]) == {}


@pytest.mark.parametrize(
    ("namespace", "quotas"), [("rich", ("all", "gold")), ("plain", ("all",)), ("not known yet", ("all",))]
)
def test_a_namespace_is_counted_by_every_quota_that_selects_it(
    namespace: str, quotas: tuple[str, ...]
) -> None:
    assert counting(namespace, quotas=[ALL, GOLD], namespaces=NAMESPACES) == quotas


def test_wants_that_no_quota_counts_have_no_payer() -> None:
    wants = [Want(key="Dataset rich/a"), Want(key="Dataset plain/b")]
    assert payers(wants, quotas=[GOLD], namespaces=NAMESPACES) == {"Dataset rich/a": ("gold",)}
    assert payers(wants, quotas=[], namespaces=NAMESPACES) == {}


def test_a_cache_within_its_quotas_says_how_many_there_are() -> None:
    condition = within_quotas([ALL, GOLD], beyond={})
    assert (condition.status, condition.message) == ("True", "2 quotas of spec.quotas")


def test_a_quota_that_pinned_data_exceeds_is_named_with_what_is_taken() -> None:
    condition = within_quotas([ALL, GOLD], beyond={"gold": 500})
    assert condition.status == "False"
    assert condition.message.startswith("gold allows 1000 bytes, and pinned data takes 1.5 KiB. ")
    # A quota that was removed meanwhile is exceeded by nobody.
    assert within_quotas([ALL], beyond={"gold": 500}).status == "True"


@pytest.mark.parametrize(("count", "others"), [(5, False), (6, True)])
def test_at_most_five_quotas_are_named(count: int, others: bool) -> None:
    quotas = [CacheQuota.model_validate({"name": f"q{number}", "bytes": 1}) for number in range(count)]
    message = within_quotas(quotas, beyond=dict.fromkeys(quota_bytes(quotas), 1)).message
    assert message.count(" allows ") == 5
    assert (" and others. " in message) is others
