"""What every engine must do: mounting and unmounting, and versions."""

from __future__ import annotations

import pytest
from tests.unit.engine.contract.world import Mounts, World

from tdcs.model.cache_engine import KeysRefusedError, MountConflictError, NoSuchPathError, Source
from tdcs.model.source_paths import store_of


class MountingContract:
    """Mounting and unmounting, and versions."""

    async def test_mounting_the_same_source_twice_is_success(self, world: World, mounts: Mounts) -> None:
        source = world.source()
        path = await mounts.add(source)
        await world.engine.mount(path=path, source=source)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_a_trailing_slash_makes_no_other_source(self, world: World, mounts: Mounts) -> None:
        source = world.source()
        path = await mounts.add(source)
        spelled = Source(uri=f"{source.uri}/", options=source.options, credentials=source.credentials)
        await world.engine.mount(path=path, source=spelled)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_unmounting_what_is_not_mounted_is_success(self, world: World, mounts: Mounts) -> None:
        await world.engine.unmount(path=mounts.new_path())

    async def test_a_path_is_mounted_once(self, world: World, mounts: Mounts) -> None:
        source = world.source()
        path = await mounts.add(source)
        with pytest.raises(MountConflictError, match="mounted") as refusal:
            await world.engine.mount(path=path, source=world.source("deep"))
        assert refusal.value.path == path
        assert dict(await world.engine.mounts()) == {path: source.uri}

    @pytest.mark.threat("volume-of-another-store")
    async def test_a_mount_is_given_other_keys_and_no_other_store(self, world: World, mounts: Mounts) -> None:
        source = world.source()
        path = await mounts.add(source)
        elsewhere = {**source.options, "region": "eu-west-1"}
        other = Source(uri=source.uri, options=elsewhere, credentials=source.credentials)
        with pytest.raises(MountConflictError, match="another source at the path") as refusal:
            await world.engine.mount(path=path, source=other)
        assert refusal.value.path == path
        await world.engine.mount(path=path, source=source)
        assert dict(await world.engine.stores()) == {path: store_of(source.options)}
        await world.engine.unmount(path=path)
        assert dict(await world.engine.stores()) == {}

    @pytest.mark.threat("bucket-squatting")
    async def test_a_bucket_and_its_prefixes_are_mounted_as_often_as_is_asked(
        self, world: World, mounts: Mounts
    ) -> None:
        sources = (world.source(), world.source("deep"), world.source())
        paths = [await mounts.add(source) for source in sources]
        uris = {path: source.uri for path, source in zip(paths, sources, strict=True)}
        assert dict(await world.engine.mounts()) == uris
        await world.engine.unmount(path=paths[0])
        assert dict(await world.engine.mounts()) == {path: uris[path] for path in paths[1:]}

    async def test_wrong_credentials_are_a_clear_error_without_the_secret(
        self, world: World, mounts: Mounts
    ) -> None:
        source = world.refused(world.source())
        with pytest.raises(KeysRefusedError, match="refused the credentials") as refusal:
            await world.engine.mount(path=mounts.new_path(), source=source)
        error = refusal.value
        assert "accessKeyId" in str(error)
        assert source.credentials is not None
        for secret in source.credentials.secrets:
            for text in (str(error), repr(error), error.reason, error.attempted, error.remedy, repr(source)):
                assert secret not in text
        assert dict(await world.engine.mounts()) == {}

    async def test_the_version_of_a_path_is_given_until_it_is_unmounted(
        self, world: World, mounts: Mounts
    ) -> None:
        path = await mounts.add(world.source())
        await mounts.add(world.source("deep"))
        for version in ("0123456789abcdef", "fedcba9876543210"):
            await world.engine.set_version(path=path, version=version)
            assert dict(await world.engine.versions()) == {path: version}
        await world.engine.unmount(path=path)
        assert dict(await world.engine.versions()) == {}
        with pytest.raises(NoSuchPathError, match=path):
            await world.engine.set_version(path=path, version="0123456789abcdef")
