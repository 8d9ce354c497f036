"""Whether the volume of a Dataset is its own, as far as an operator that has just started can see it."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from tdcs.control.context import WorkKey
from tdcs.control.dataset.access.key_checks import KeyChecks
from tdcs.control.dataset.access.volume_origins import UNHEARD, MountedSource, Origin, VolumeOrigins, judge
from tdcs.decide.cache.mount_identity import engine_path
from tdcs.decide.problem import Refusal
from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.file_selection import WITHIN
from tdcs.model.kube_resources import DATASETS
from tdcs.model.source_paths import store_of

KEY = WorkKey(DATASETS, "team-b", "images")
ALL: Mapping[str, str] = MappingProxyType({})
GRANTED: Mapping[str, str] = MappingProxyType({WITHIN: "train"})
OLD, NEW = (Credentials(access_key_id="me", secret_access_key=secret) for secret in ("old", "new"))


def source(options: Mapping[str, str], keys: Credentials | None = None) -> Source:
    return Source(uri="s3://pictures", options=options, credentials=keys)


def mounted(options: Mapping[str, str] | None) -> MountedSource:
    """As the cache says it; None: the cache does not know with which options."""
    store = store_of(options) if options is not None else ""
    return MountedSource(source=None, uri="s3://pictures", store=store)


async def takes_keys(source: Source, *, namespace: str) -> bool:
    return True


def doubt(
    origins: VolumeOrigins, mounted: MountedSource, *, path: str, keys: Credentials | None = NEW
) -> Refusal | None:
    """Of the volume of a guest with a grant of one folder."""
    return origins.doubt(
        KEY,
        uid="1",
        path=path,
        spec=source(GRANTED),
        source=source(GRANTED, keys) if keys is not None else None,
        mounted=mounted,
        check_keys=takes_keys,
        is_guest=True,
    )


@pytest.fixture
def origins() -> VolumeOrigins:
    return VolumeOrigins(key_checks=KeyChecks(seconds=60.0, clock=lambda: 0.0, on_done=lambda key: None))


@pytest.mark.parametrize("keys", [OLD, NEW, None], ids=["old keys", "new keys", "no keys"])
def test_a_mount_of_other_files_of_the_same_source_is_another_source(keys: Credentials | None) -> None:
    path = engine_path(source=source(ALL, OLD))
    with_keys = source(GRANTED, keys) if keys is not None else None
    found = judge(path=path, spec=source(GRANTED), source=with_keys, mounted=mounted(ALL))
    assert found is Origin.OTHER


@pytest.mark.threat("outside-the-grant")
@pytest.mark.parametrize("keys", [OLD, NEW, None], ids=["old keys", "new keys", "no keys"])
@pytest.mark.parametrize("options", [ALL, None], ids=["all", "unknown"])
async def test_a_guest_loses_a_volume_that_is_not_seen_to_be_within_its_grant(
    origins: VolumeOrigins, options: Mapping[str, str] | None, keys: Credentials | None
) -> None:
    refusal = doubt(origins, mounted(options), path=engine_path(source=source(ALL, OLD)), keys=keys)
    assert refusal is not None
    assert refusal.permanent


@pytest.mark.threat("outside-the-grant")
def test_a_guests_volume_that_is_not_known_to_be_wider_waits_for_the_caches_first_answer(
    origins: VolumeOrigins,
) -> None:
    unheard = dataclasses.replace(mounted(None), uri="", is_heard=False)
    assert doubt(origins, unheard, path=engine_path(source=source(ALL, OLD))) is UNHEARD
    granted = engine_path(source=source(GRANTED, NEW))
    assert doubt(origins, unheard, path=granted) is None, "the path says it"
    assert doubt(origins, unheard, path=granted, keys=None) is None, "as it was seen with these options"


@pytest.mark.threat("outside-the-grant")
async def test_a_guest_keeps_a_volume_within_its_grant_while_the_owners_new_keys_are_asked_about(
    origins: VolumeOrigins,
) -> None:
    refusal = doubt(origins, mounted(GRANTED), path=engine_path(source=source(GRANTED, OLD)))
    assert refusal is not None
    assert not refusal.permanent
