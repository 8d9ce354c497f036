"""A shared folder of too many files: its listing ends at the limit."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import subprocess
import tempfile
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.dataplane.agents import running_agent
from tests.support.waiting import eventually_async

from tdcs.control.dataset.mount.listing_gate import STUCK_AT_ONCE
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import NO_AGENTS, FolderAgents, FolderListing
from tdcs.listing.one_listing import list_source
from tdcs.model.agent_state import FolderCount, FolderLimit, FolderPage
from tdcs.model.cache_engine import EngineUnavailableError, LimitExceededError, Source, SourceError
from tdcs.model.file_folders import folder_count
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent import folder_routes
from tdcs.node.agent.mount import folder_count as folder_counting
from tdcs.node.agent.mount.folder_count import count_folder

PATH = "/datasets/1f"
FILES, BYTES = 3_000, 5
FOLDERS = 2
WHOLE = SourcesSize(files=FILES + FOLDERS, folders=FOLDERS, bytes=FILES * BYTES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders in each other, with a thousand files each, which no test changes."""
    return filled(tmp_path_factory.mktemp("shared") / "mine")


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """The same, for one test."""
    return filled(tmp_path / "shared" / "mine")


def filled(made: Path) -> Path:
    for deeper in (made, made / "a", made / "a" / "b"):
        deeper.mkdir(parents=True)
        for number in range(FILES // 3):
            (deeper / str(number)).write_bytes(b"x" * BYTES)
    return made


def limit(folder: Path, *, files: int = 10**6, size: int | None = None, seconds: float = 60.0) -> FolderLimit:
    return FolderLimit(folder=str(folder), files=files, bytes=size, seconds=seconds)


@pytest.mark.threat("folder-names-by-the-million")
def test_all_is_counted_and_no_more_than_one_file_beyond_the_limit(folder: Path) -> None:
    whole = FolderCount(files=FILES, counted=FILES, folders=FOLDERS, bytes=FILES * BYTES)
    assert count_folder(limit(folder)) == count_folder(limit(folder, size=10**9)) == whole
    assert count_folder(limit(folder, files=FILES + FOLDERS)) == whole
    few = count_folder(limit(folder, files=700))
    assert few.files + few.folders == 701
    assert count_folder(limit(folder, size=999)).files == 200


@pytest.mark.threat("folder-names-by-the-million")
def test_empty_folders_are_counted_too_and_no_more_than_one_beyond_the_limit(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}" / "deeper").mkdir(parents=True)
    assert count_folder(limit(tmp_path)) == FolderCount(folders=100)
    assert count_folder(limit(tmp_path, files=70)) == FolderCount(folders=71)


@pytest.mark.threat("folder-names-by-the-million")
def test_links_are_counted_and_not_followed(own_folder: Path) -> None:
    (own_folder.parent / "secrets").mkdir()
    (own_folder.parent / "secrets" / "key").write_bytes(b"x" * 10**6)
    for number, target in enumerate(["../secrets", "../secrets/key", ".", "/etc", "none", "link-0"]):
        os.symlink(target, own_folder / f"link-{number}")
    size = count_folder(limit(own_folder, size=10**9))
    assert size.files == FILES + 6
    assert size.bytes < FILES * BYTES + 100


def test_a_folder_that_is_not_there_has_no_files(folder: Path) -> None:
    assert count_folder(limit(folder / "none")) == FolderCount()


@pytest.mark.threat("link-as-source")
def test_what_is_no_folder_or_reached_by_a_link_is_not_counted(folder: Path, tmp_path: Path) -> None:
    os.symlink(folder, tmp_path / "link")
    for folder_or_link in (folder / "0", tmp_path / "link", tmp_path / "link" / "a"):
        size = count_folder(limit(folder_or_link))
        assert size.refused
        assert str(folder_or_link) in size.failure


@contextmanager
def unprivileged(*groups: int) -> Iterator[None]:
    """As a user without rights, in these groups. All threads of the process are."""
    before = os.getgroups()
    os.setgroups(groups)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setgroups(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.threat("folders-of-others")
def test_a_folder_that_the_cache_may_not_read_is_not_counted_as_an_empty_one() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, closed = Path(temporary), Path(temporary) / "a" / "b"
        closed.mkdir(parents=True)
        (closed / "0").write_bytes(b"x")
        folder.chmod(0o755)
        os.chown(closed, 0, 2000)
        closed.chmod(0o750)
        with unprivileged():
            size, root = count_folder(limit(folder)), count_folder(limit(closed))
        with unprivileged(2000):
            assert count_folder(limit(folder)) == FolderCount(files=1, counted=1, folders=2, bytes=1)
    for folder_size in (size, root):
        assert folder_size.unreadable
        assert not folder_size.refused
        assert folder_size.failure == f"user 65534 with the groups 0 may not read {closed}"


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_folder_that_cannot_be_looked_through_is_not_counted_so_far(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    plain = os.scandir

    def scandir(path: int) -> Iterator[os.DirEntry[str]]:
        if os.readlink(f"/proc/self/fd/{path}").endswith("/a"):
            raise OSError(code, os.strerror(code))
        return plain(path)

    monkeypatch.setattr(os, "scandir", scandir)
    size = count_folder(limit(folder))
    assert os.strerror(code) in size.failure
    assert not size.refused


@pytest.mark.threat("slow-counts")
def test_a_count_ends_with_its_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_counting, "_LOOK", 100)
    size = count_folder(limit(folder, seconds=-1.0))
    assert size.cut_off
    assert size.files < FILES


def test_a_count_of_empty_folders_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / f"{number}").mkdir()
    times = iter([0.0, *[1.0] * 20, *[3.0] * 100])
    monkeypatch.setattr(folder_counting, "_LOOK", 1)
    monkeypatch.setattr(folder_counting, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert count_folder(limit(tmp_path, seconds=2.0)) == FolderCount(folders=20, cut_off=True)


def test_folders_deeper_than_a_path_can_name_are_counted_so_far(tmp_path: Path) -> None:
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(2_100):
        os.mkdir("d", dir_fd=opened)
        deeper = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = deeper
    os.close(opened)
    gc.collect()  # descriptors that other tests have left are closed at any time
    before = len(os.listdir("/proc/self/fd"))
    size = count_folder(limit(tmp_path, size=10**9))
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # Python's own ways to remove it recurse
    depth = 1 + list(accumulate(folder_count(2 * deeper - 1) for deeper in range(1, 2_101))).index(
        size.folders
    )
    assert 1_000 < depth < 2_100
    assert size.files == 0
    assert len(os.listdir("/proc/self/fd")) <= before


def test_memory_does_not_grow_with_the_number_of_folders(tmp_path: Path) -> None:
    for number in range(4_000):
        (tmp_path / f"{number:0>200}").mkdir()
    tracemalloc.start()
    try:
        assert count_folder(limit(tmp_path)) == FolderCount(folders=4_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000  # their names have 800,000 bytes


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[FolderAgents]:
    """One real agent, of a cache that has no other one."""
    async with running_agent(tmp_path / "tier") as agent:
        yield FolderAgents(urls={"b": agent.url})


async def listed(agents: FolderAgents, at: Path, manifests: Path, **allowed: int) -> SourcesSize:
    """The size of a folder by its listing."""
    listing = await list_source(
        source=Source(uri=f"file://{at}"),
        path=PATH,
        folder=ManifestFolder(manifests),
        limit=ListingLimit(**allowed),  # type: ignore[arg-type]
        agents=agents,
    )
    return listing.size


@pytest.mark.threat("folder-names-by-the-million")
async def test_a_listing_counts_and_ends_at_its_limit_which_is_named(
    agents: FolderAgents, own_folder: Path, tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests"
    with pytest.raises(
        LimitExceededError, match=r"more than 3001 files and folders,.* 2 so far: spec\.limits"
    ):
        await listed(agents, own_folder, manifests, files=FILES + FOLDERS - 1)
    assert not ManifestFolder(manifests).digests()
    assert await listed(agents, own_folder, manifests, files=FILES + FOLDERS) == WHOLE
    for number in range(FILES + 1):
        (own_folder / f"empty-{number}").mkdir()
    with pytest.raises(
        LimitExceededError, match=rf"more than {2 * FILES} files and folders,.*: spec\.limits"
    ):
        await listed(agents, own_folder, manifests, files=2 * FILES)
    with pytest.raises(LimitExceededError, match="more than 100 bytes"):
        await listed(agents, own_folder, manifests, files=3 * FILES, bytes=100)


async def test_a_folder_that_takes_too_long_is_no_small_one(
    agents: FolderAgents, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_counting, "_LOOK", 100)
    source = Source(uri=f"file://{folder}")
    slow = FolderListing(
        source=source,
        path=PATH,
        limit=ListingLimit(files=FILES),
        builder=lambda: ManifestBuilder(path=PATH, source=source.uri),
        agents=agents,
        seconds=0.0,
    )
    with pytest.raises(SourceError, match="and there are more"):
        await slow.run()


@pytest.mark.parametrize("place", ["link", "link/a"])
@pytest.mark.threat("link-as-source")
async def test_a_link_is_named_with_what_to_do(
    agents: FolderAgents, folder: Path, tmp_path: Path, place: str
) -> None:
    os.symlink(folder, tmp_path / "link")
    with pytest.raises(SourceError, match="without symbolic links"):
        await listed(agents, tmp_path / place, tmp_path / "manifests", files=10**6)


@pytest.mark.threat("folders-of-others")
async def test_a_folder_that_may_not_be_read_is_named_with_who_can_change_that(
    agents: FolderAgents, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = os.scandir

    def scandir(path: int) -> Iterator[os.DirEntry[str]]:
        if os.readlink(f"/proc/self/fd/{path}").endswith("/b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scanned(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(SourceError, match=r"may not read \S+/a/b \(node .*spec\.folderAccess"):
        await listed(agents, folder, tmp_path / "manifests", files=10**6)


async def test_what_no_agent_can_list_waits_for_one(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="no agent of the cache is there"):
        await listed(NO_AGENTS, folder, tmp_path / "manifests", files=10**6)


@pytest.mark.threat("slow-counts")
async def test_folders_of_one_namespace_that_hang_keep_no_other_from_being_listed(
    agents: FolderAgents, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the operator lists at a time of one namespace, at the only agent."""
    goes_on, begun, real_list_folder = threading.Event(), list[str](), folder_counting.list_folder
    slow = tmp_path / "slow"
    slow.mkdir()

    def hang(limit: FolderLimit) -> Iterator[FolderPage]:
        if limit.folder == str(slow):
            begun.append(limit.folder)
            goes_on.wait(60)
        yield from real_list_folder(limit)

    monkeypatch.setattr(folder_routes, "list_folder", hang)
    places = STUCK_AT_ONCE // 2
    hanging = [
        asyncio.create_task(listed(agents, slow, tmp_path / f"slow-{number}", files=FILES))
        for number in range(places)
    ]
    try:
        await eventually_async(lambda: len(begun) == places, deadline=20)
        async with asyncio.timeout(20):
            assert await listed(agents, folder, tmp_path / "manifests", files=FILES + FOLDERS) == WHOLE
        goes_on.set()
        assert await asyncio.gather(*hanging) == [SourcesSize()] * places
    finally:
        goes_on.set()
