"""Engine path and mark of a source."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import dataset_object

from tdcs.api.dataset import Dataset
from tdcs.decide.cache import mount_identity
from tdcs.model.cache_engine import Credentials, Source

URI = "s3://bucket/prefix"


def source(uri: str = URI, *, key: str = "k", endpoint: str = "http://s") -> Source:
    return Source(
        uri=uri,
        options={"endpoint": endpoint},
        credentials=Credentials(access_key_id="me", secret_access_key=key),
    )


def test_equal_sources_share_a_path_and_others_do_not() -> None:
    path = mount_identity.engine_path(source=source())
    assert path == mount_identity.engine_path(source=source())
    sources = [source("s3://bucket/other"), source(key="x"), source(endpoint="http://t"), Source(uri=URI)]
    assert len({path, *(mount_identity.engine_path(source=different) for different in sources)}) == 5


def test_two_spellings_of_a_source_are_one() -> None:
    def path(uri: str) -> str:
        obj = dataset_object()
        obj["spec"]["source"]["uri"] = uri
        spec = Dataset.model_validate(obj).spec
        return mount_identity.engine_path(source=mount_identity.source_of(spec=spec, credentials=None))

    assert path("s3://bucket/a/") == path("s3://bucket/a") != path("s3://bucket/b")


def test_the_engine_gets_options_as_text() -> None:
    obj = dataset_object()
    obj["spec"]["source"]["options"] = {"pathStyle": True, "region": "r"}
    mounted = mount_identity.source_of(spec=Dataset.model_validate(obj).spec, credentials=None)
    assert dict(mounted.options) == {"pathStyle": "true", "region": "r"}


def source_of(uri: str = URI, *, options: dict[str, Any] | None = None, **more: Any) -> Source:
    obj = dataset_object()
    obj["spec"]["source"] |= {"uri": uri, **({"options": options} if options else {})}
    spec = Dataset.model_validate(obj).spec
    return mount_identity.source_of(spec=spec, **{"credentials": None, **more})


def test_options_that_are_not_set_are_left_out() -> None:
    assert source_of().options == {}


def test_claims_of_one_name_in_two_namespaces_are_two_sources() -> None:
    first, second = (source_of("pvc://photos/train", namespace=name) for name in ("a", "b"))
    assert mount_identity.engine_path(source=first) != mount_identity.engine_path(source=second)
    shared, guest = (source_of(namespace=name) for name in ("a", "b"))
    assert mount_identity.engine_path(source=shared) == mount_identity.engine_path(source=guest)


def test_a_grant_of_a_part_of_a_source_is_another_source() -> None:
    whole, part = source_of(), source_of(within=("train", "val"))
    assert part.options == {"within": "train\nval"}
    assert mount_identity.engine_path(source=whole) != mount_identity.engine_path(source=part)


def test_only_a_web_source_is_redirected() -> None:
    redirects = ("https://cdn.example.com",)
    assert source_of("https://example.com/data/", redirects=redirects).redirects == redirects
    assert source_of(redirects=redirects).redirects == ()


def test_keys_of_an_owner_that_renews_them_keep_the_path() -> None:
    def path(secret: str, owner: str) -> str:
        keys = Credentials(access_key_id="me", secret_access_key=secret, owner=owner)
        return mount_identity.engine_path(source=Source(uri=URI, options={}, credentials=keys))

    assert path("old", "role") == path("new", "role")
    assert path("old", "role") != path("old", "other")
    assert path("old", "") != path("new", "")


@pytest.mark.parametrize(
    "changed",
    [
        {"address": "10.0.0.1"},
        {"ca_bundle": "pem"},
        {"redirects": ("https://cdn.example.com",)},
        {"proxy": "http://proxy:3128"},
        {"options": {"region": "r"}},
        {"uri": "s3://bucket/other"},
        {"credentials": Credentials(access_key_id="me", secret_access_key="x")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_mark_of_a_source_changes_with_all_that_its_reading_depends_on(changed: dict[str, Any]) -> None:
    before = source()
    assert mount_identity.mark(replace(before, **changed)) != mount_identity.mark(before)
    assert mount_identity.mark(source()) == mount_identity.mark(before)


def test_neither_path_nor_mark_shows_a_secret() -> None:
    hidden = source(key="topsecret")
    assert "topsecret" not in mount_identity.engine_path(source=hidden)
    assert "topsecret" not in str(mount_identity.mark(hidden))
    assert mount_identity.digest(Source(uri=URI, options={})) == ""
