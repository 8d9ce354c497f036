"""Libraries that read objects of a store with no mount: Mountpoint's client, as PyTorch's connector has it, and the
model streamer of Run:ai. They keep nothing, so each read is one of the store.

They need packages that nothing else here does, in an interpreter of their own:

    python3 -m venv VENV && VENV/bin/pip install s3torchconnectorclient runai-model-streamer[s3]
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.cache.cache_lab import KEYS, Store

_MEASURE: Final = """
import json, os, sys, threading, time
task = json.loads(sys.stdin.read())
{library}
def work(names):
    for name in names: read(name)
threads = [threading.Thread(target=work, args=(share,)) for share in task["shares"]]
used, began = os.times(), time.monotonic()
if "read_all" in globals(): read_all([name for share in task["shares"] for name in share])
else:
    for thread in threads: thread.start()
    for thread in threads: thread.join()
end = os.times()
print(json.dumps(dict(seconds=time.monotonic() - began, bytes=sum(counts), errors=0,
                      cpu=end.user + end.system - used.user - used.system)))
"""
LIBRARIES: Final = {
    "s3torchconnector": """
from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client
client = MountpointS3Client(region="us-east-1", endpoint=task["endpoint"], force_path_style=True)
counts = []
def read(name): counts.append(sum(len(part) for part in client.get_object(task["bucket"], name)))
""",
    "runai_model_streamer": """
from runai_model_streamer import FileStreamer
from runai_model_streamer.file_streamer.requests_iterator import FileChunks
counts = []
def read_all(names):
    with FileStreamer() as streamer:
        streamer.stream_files([
            FileChunks.contiguous(number, f"s3://{task['bucket']}/{name}", 0, [task["size"]])
            for number, name in enumerate(names)])
        for _, _, tensor in streamer.get_chunks(): counts.append(tensor.numel())
""",
}


def read_directly(
    library: str, *, python: Path, store: Store, bucket: str, names: Sequence[str], size: int, threads: int
) -> dict[str, Any]:
    """Read these objects, which have `size` bytes each, once; figures as those of `peers.read`, less the store's.

    Args:
        library: of `LIBRARIES`.
        python: interpreter that has it.
    """
    task = {
        "endpoint": store.options["endpoint"],
        "bucket": bucket,
        "size": size,
        "shares": [list(names[number::threads]) for number in range(threads)],
    }
    variables = {
        "AWS_ACCESS_KEY_ID": KEYS.access_key_id,
        "AWS_SECRET_ACCESS_KEY": KEYS.secret_access_key,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": store.options["endpoint"],
        "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    program = _MEASURE.replace("{library}", LIBRARIES[library])
    done = subprocess.run(
        [python, "-c", program],
        input=json.dumps(task),
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{library} failed: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
