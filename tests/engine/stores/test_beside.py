"""What Alluxio makes of an object beside objects below its name: a limit that the how-to page tells."""

from __future__ import annotations

import pytest
from tests.engine.stores.flat_store import flat_store

from tdcs.alluxio import AlluxioEngine
from tdcs.model.cache_engine import Credentials, Source

OBJECTS = {"data/a": 10, "data/a-b": 1, "data/a.txt": 2, "data/a/b": 20, "data/a/c/d": 30, "data/e/f": 7}


@pytest.mark.failure_mode("object-next-to-folder-of-same-name")
async def test_of_an_object_next_to_a_folder_of_its_name_the_object_is_listed_and_the_folder_is_not(
    engine: AlluxioEngine, network: str
) -> None:
    """Should this fail, both can be told of: see `docs/how-to/read-data.md`."""
    path = "/datasets/sibling"
    keys = Credentials(access_key_id="any", secret_access_key="any")
    with flat_store(address=f"{network}.9", objects=OBJECTS) as endpoint:
        source = Source(uri="s3://bucket/data", options={"endpoint": endpoint}, credentials=keys)
        await engine.mount(path=path, source=source)
        try:
            for refresh in (False, True):
                pages = [page async for page in engine.files(path=path, refresh=refresh)]
                found = {file.path: file.length for page in pages for file in page}
                assert found == {"a": 10, "a-b": 1, "a.txt": 2, "e/f": 7}
        finally:
            await engine.unmount(path=path)
