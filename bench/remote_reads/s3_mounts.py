"""Mounts of a bucket by programs that others use: rclone and s3fs, each with a disk cache of its own or without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.cache.cache_lab import KEYS, Store
from tests.support.waiting import eventually

PROGRAMS: Final = ("rclone", "s3fs")
_DAY: Final = "24h"


@contextmanager
def mounted(
    program: str, *, store: Store, bucket: str, folder: Path, cached: bool
) -> Iterator[tuple[Path, int]]:
    """A bucket mounted read-only, tuned for many small files that never change; the folder and the program's process.

    Args:
        program: of `PROGRAMS`.
        folder: for the mount, the cache and the keys.
        cached: whether it keeps what it read on the disk.

    Raises:
        FileNotFoundError: the program is not installed.
    """
    if shutil.which(program) is None:
        raise FileNotFoundError(f"{program} is not installed: apt-get install {program}")
    point, cache = folder / program, folder / f"{program}-cache"
    for directory in (point, cache):
        directory.mkdir(parents=True)
    words, variables = (_rclone if program == "rclone" else _s3fs)(
        store, bucket, point, cache if cached else None
    )
    # What a machine sets for Amazon's own store (certificates, say) is not for this one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with (folder / f"{program}.log").open("w") as log:
        process = subprocess.Popen(words, env=inherited | variables, stdout=log, stderr=log)
    try:
        eventually(
            lambda: os.path.ismount(point) or process.poll() is not None,
            deadline=30,
            describe=(folder / f"{program}.log").read_text,
        )
        if process.poll() is not None:
            raise RuntimeError(f"{program} ended: {(folder / f'{program}.log').read_text()}")
        yield point, process.pid
    finally:
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
        process.terminate()
        process.wait(timeout=30)


def _rclone(store: Store, bucket: str, point: Path, cache: Path | None) -> tuple[list[str], dict[str, str]]:
    words = [
        *("rclone", "mount", f"store:{bucket}", str(point), "--read-only", "--dir-cache-time", _DAY),
        *("--attr-timeout", "1h", "--vfs-fast-fingerprint", "--vfs-read-chunk-size", "1M", "--no-modtime"),
    ]
    if cache is not None:
        words += ["--vfs-cache-mode", "full", "--cache-dir", str(cache), "--vfs-cache-max-age", _DAY]
    variables = {
        "RCLONE_CONFIG": str(point.parent / "rclone.conf"),
        "RCLONE_CONFIG_STORE_TYPE": "s3",
        "RCLONE_CONFIG_STORE_PROVIDER": "Other",
        "RCLONE_CONFIG_STORE_ENDPOINT": store.options["endpoint"],
        "RCLONE_CONFIG_STORE_ACCESS_KEY_ID": KEYS.access_key_id,
        "RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY": KEYS.secret_access_key,
    }
    return words, variables


def _s3fs(store: Store, bucket: str, point: Path, cache: Path | None) -> tuple[list[str], dict[str, str]]:
    secret = point.parent / "s3fs-keys"
    secret.write_text(f"{KEYS.access_key_id}:{KEYS.secret_access_key}")
    secret.chmod(0o600)
    options = [
        *("ro", f"passwd_file={secret}", f"url={store.options['endpoint']}", "use_path_request_style"),
        *("parallel_count=16", "max_stat_cache_size=200000", "multireq_max=32"),
        *([f"use_cache={cache}"] if cache is not None else []),
    ]
    return ["s3fs", bucket, str(point), "-f", "-o", ",".join(options)], {}
