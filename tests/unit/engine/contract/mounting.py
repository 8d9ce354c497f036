"""What every engine must do: mounting, unmounting and listing."""

from __future__ import annotations

import pytest
from tests.unit.engine.contract.world import (
    BLOCK_SIZE,
    MIB,
    Mounts,
    World,
    becomes_empty,
    blocks_of,
    files_of,
    holders,
)

from tdcs.model.cache_engine import (
    MountConflictError,
    NoSuchPathError,
    Source,
    SourceError,
)


class MountingContract:
    """Mounting, unmounting and listing."""

    async def test_mounting_the_same_source_twice_is_success(self, world: World, mounts: Mounts) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        await world.engine.mount(path=path, source=source)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_a_trailing_slash_makes_no_other_source(self, world: World, mounts: Mounts) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        spelled = Source(uri=f"{source.uri}/", options=source.options, credentials=source.credentials)
        await world.engine.mount(path=path, source=spelled)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_unmounting_what_is_not_mounted_is_success(self, world: World, mounts: Mounts) -> None:
        await world.engine.unmount(path=mounts.new_path())

    async def test_a_path_is_mounted_once(self, world: World, mounts: Mounts) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        for taken in (path, f"{path}/below"):
            with pytest.raises(MountConflictError, match="mounted already") as refusal:
                await world.engine.mount(path=taken, source=world.source({"b": 1}))
            assert refusal.value.path == taken
        assert dict(await world.engine.mounts()) == {path: source.uri}

    @pytest.mark.threat("volume-of-another-store")
    async def test_a_mount_is_given_other_keys_and_no_other_store(self, world: World, mounts: Mounts) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        elsewhere = {**source.options, "region": "eu-west-1"}
        other = Source(uri=source.uri, options=elsewhere, credentials=source.credentials)
        with pytest.raises(MountConflictError, match="another source at the path") as refusal:
            await world.engine.mount(path=path, source=other)
        assert refusal.value.path == path
        await world.engine.mount(path=path, source=source)

    @pytest.mark.threat("bucket-squatting")
    async def test_a_bucket_and_its_prefixes_are_mounted_as_often_as_is_asked(
        self, world: World, mounts: Mounts
    ) -> None:
        source = world.source({"deep/a": 10, "deep/b": 20})
        below = Source(uri=f"{source.uri}/deep", options=source.options, credentials=source.credentials)
        paths = [await mounts.add(one) for one in (source, below, source)]
        uris = (source.uri, below.uri, source.uri)
        assert dict(await world.engine.mounts()) == dict(zip(paths, uris, strict=True))
        found = [{file.path: file.length for file in await files_of(world.engine, path)} for path in paths]
        whole = {"deep/a": 10, "deep/b": 20}
        assert found == [whole, {"a": 10, "b": 20}, whole]
        # Each has blocks of its own, and goes without the others.
        ids = [{block.id for block in await blocks_of(world.engine, path)} for path in paths]
        assert len(frozenset[int]().union(*ids)) == sum(map(len, ids)) == 6
        await world.engine.unmount(path=paths[0])
        assert [file.path for file in await files_of(world.engine, paths[2])] == ["deep/a", "deep/b"]

    async def test_a_missing_bucket_is_a_clear_error_and_leaves_no_mount(
        self, world: World, mounts: Mounts
    ) -> None:
        source, path = world.missing_source(), mounts.new_path()
        with pytest.raises(SourceError, match="no such bucket") as refusal:
            await world.engine.mount(path=path, source=source)
        assert source.uri in str(refusal.value)
        assert path in str(refusal.value)
        _no_secret(source, refusal.value)
        assert dict(await world.engine.mounts()) == {}

    async def test_a_prefix_without_files_is_an_error_of_the_source_each_time_next_to_its_mounted_bucket(
        self, world: World, mounts: Mounts
    ) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        none = Source(uri=f"{source.uri}/none", options=source.options, credentials=source.credentials)
        other = mounts.new_path()
        for _ in range(2):
            with pytest.raises(SourceError, match="no such"):
                await world.engine.mount(path=other, source=none)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_wrong_credentials_are_a_clear_error_without_the_secret(
        self, world: World, mounts: Mounts
    ) -> None:
        source, path = world.refused(world.source({"a": 10})), mounts.new_path()
        with pytest.raises(SourceError, match="refused the credentials") as refusal:
            await world.engine.mount(path=path, source=source)
        assert "accessKeyId" in str(refusal.value)
        _no_secret(source, refusal.value)
        assert dict(await world.engine.mounts()) == {}

    async def test_a_listing_names_every_file_with_blocks_that_add_up(
        self, world: World, mounts: Mounts
    ) -> None:
        wanted = {"b/c/deep": 5, "a": 3 * MIB + 1, "b-2": MIB, "b/x": 1, "empty": 0, "a b ü": 7}
        path = await mounts.add(world.source(wanted))
        found = await files_of(world.engine, path)
        assert {file.path: file.length for file in found} == wanted
        assert [file.path for file in found] == sorted(wanted, key=lambda name: name.split("/"))
        for file in found:
            assert sum(block.length for block in file.blocks) == file.length
            offsets = [block.offset for block in file.blocks]
            assert offsets == [index * BLOCK_SIZE for index in range(len(offsets))]
        blocks = [block for file in found for block in file.blocks]
        assert len({block.id for block in blocks}) == len(blocks) == 4 + 1 + 1 + 1 + 1
        assert {block.workers for block in blocks} == {frozenset()}

    async def test_a_long_listing_comes_in_pages(self, world: World, mounts: Mounts) -> None:
        wanted = {f"d{index % 7}/f{index:05}": 1 for index in range(2500)}
        path = await mounts.add(world.source(wanted))
        pages = [page async for page in world.engine.files(path=path)]
        assert len(pages) > 1
        names = [file.path for page in pages for file in page]
        assert names == sorted(wanted)

    async def test_only_a_refresh_sees_what_changed_at_the_source(self, world: World, mounts: Mounts) -> None:
        source = world.source({"kept": 10, "grown": 10, "deleted": 10})
        path = await mounts.add(source)
        before = {file.path: file for file in await files_of(world.engine, path)}
        await world.place(worker=world.large, blocks=await blocks_of(world.engine, path))
        world.write(source, "grown", 25)
        world.write(source, "new/file", 5)
        world.remove(source, "deleted")
        assert {file.path for file in await files_of(world.engine, path)} == set(before)
        after = {file.path: file for file in await files_of(world.engine, path, refresh=True)}
        assert {name: file.length for name, file in after.items()} == {"kept": 10, "grown": 25, "new/file": 5}
        assert after["kept"].blocks[0].id == before["kept"].blocks[0].id
        assert after["kept"].blocks[0].workers == {world.large}
        assert after["grown"].blocks[0].id != before["grown"].blocks[0].id
        assert after["grown"].blocks[0].workers == frozenset()

    async def test_a_path_without_a_mount_cannot_be_listed(self, world: World, mounts: Mounts) -> None:
        path = mounts.new_path()
        with pytest.raises(NoSuchPathError, match=path):
            await files_of(world.engine, path)

    async def test_unmount_frees_the_room_and_leaves_the_source_alone(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, source = world.engine, world.source({"a": 2 * MIB, "b/c": 10})
        path = await mounts.add(source)
        for worker in (world.small, world.large):
            await world.place(worker=worker, blocks=await blocks_of(engine, path))
        await engine.unmount(path=path)
        assert dict(await engine.mounts()) == {}
        for worker in (world.small, world.large):
            await becomes_empty(engine, worker)
        again = await mounts.add(source)
        assert {file.path: file.length for file in await files_of(engine, again)} == {"a": 2 * MIB, "b/c": 10}
        assert await holders(engine, again) == {frozenset()}

    async def test_the_version_of_a_path_is_given_until_it_is_unmounted(
        self, world: World, mounts: Mounts
    ) -> None:
        path = await mounts.add(world.source({"a": 10}))
        await mounts.add(world.source({"b": 10}))
        for version in ("0123456789abcdef", "fedcba9876543210"):
            await world.engine.set_version(path=path, version=version)
            assert dict(await world.engine.versions()) == {path: version}
        await world.engine.unmount(path=path)
        assert dict(await world.engine.versions()) == {}


def _no_secret(source: Source, error: SourceError) -> None:
    assert source.credentials is not None
    for secret in source.credentials.secrets:
        for text in (str(error), repr(error), error.reason, error.attempted, error.remedy, repr(source)):
            assert secret not in text
