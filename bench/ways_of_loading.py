"""The same small files loaded by the product and by Alluxio's own ways, one after the other on the same processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
from bench.alluxio_loads import JobService, distributed, job_service, master_driven
from bench.cache_lab import Lab
from bench.cpu_time import CpuTime, kinds
from bench.loading import emptied, listed, loaded, measured, require, spread

from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.table import BlockTable

WARM_FOLDER = "000"
"""What each way loads first, so that its processes are warm; not counted."""

BATCH = 20
"""Files in one job of the batched distributedLoad: what Alluxio's documentation names as the default, which is 1."""

HEARTBEATS_SECONDS = 3.0
"""After so long a worker has told the master of all that it removed; a block loaded earlier may get lost again."""

Load = Callable[[str], Awaitable[float]]
"""Loads what lies below a path; its own seconds."""


async def compared(*, lab: Lab, engine: AlluxioEngine, path: str, files: int) -> dict[str, Any]:
    """Each way: seconds, files a second, and processor seconds by kind of process.

    Before each one nothing is cached and the page cache is dropped.
    """
    with job_service(lab.cache) as jobs:
        ways: dict[str, Load] = {
            "product": lambda below: _by_product(lab, engine, path, below),
            "master_driven": lambda below: master_driven(lab.cache, below),
            "distributed_load": lambda below: distributed(jobs, below, batch=1),
            f"distributed_load_batch_{BATCH}": lambda below: distributed(jobs, below, batch=BATCH),
        }
        cpu = CpuTime(pids=_kinds(lab, jobs))
        result: dict[str, Any] = {"order": list(ways)}
        for name, load in ways.items():
            await load(f"{path}/{WARM_FOLDER}")
            await _afresh(engine, path)
            cpu.again()
            seconds = await load(path)
            used = cpu.report()
            await _require_all(engine, path, files=files, way=name)
            result[name] = {
                "seconds": round(seconds, 1),
                "files_per_s": round(files / seconds),
                "cpu_seconds": used,
            }
            await _afresh(engine, path)
    best = max(value["files_per_s"] for name, value in result.items() if name.startswith("distributed"))
    result["over_distributed_load"] = round(result["product"]["files_per_s"] / best, 2)
    result["over_master_driven"] = round(
        result["product"]["files_per_s"] / result["master_driven"]["files_per_s"], 2
    )
    return result


async def _by_product(lab: Lab, engine: AlluxioEngine, mounted: str, below: str) -> float:
    table, part = await listed(engine, mounted), below.removeprefix(mounted).lstrip("/")
    nodes = [worker.name for worker in await engine.workers()]
    work = spread(table, nodes, below=part)
    load = await measured(lab, lambda: loaded(engine, work))
    await require(engine, mounted, work)
    return load.seconds


async def _afresh(engine: AlluxioEngine, path: str) -> None:
    await emptied(engine, path)
    await asyncio.sleep(HEARTBEATS_SECONDS)
    await asyncio.to_thread(_drop_page_cache)


def _drop_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


async def _require_all(engine: AlluxioEngine, path: str, *, files: int, way: str) -> None:
    table: BlockTable = await listed(engine, path)
    there = sum(1 for block in range(len(table)) if table.holders(block))
    if there != files:
        raise click.ClickException(f"{way} cached {there} of {files} files")


def _kinds(lab: Lab, jobs: JobService) -> dict[str, list[int]]:
    return {
        **kinds(lab),
        "job_master": [jobs.master.pid],
        "job_workers": [process.pid for process in jobs.workers],
    }
