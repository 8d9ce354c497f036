"""Read every image of a dataset once, as fast as several readers can: from a folder, or from an S3 bucket directly.

    read_images.py --data /data
    read_images.py --bucket pictures --endpoint http://store.example:7070

Pods of an Indexed Job with JOB_COMPLETION_INDEX share out the images among `--pods`. Names are listed before the clock
starts. With `--meet HOST`, the name of the pod with index 0, all pods begin together: they start seconds apart, which
is longer than some of them read. For a bucket the keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. One line of
JSON is printed:

    {"images": 800, "bytes": 90112000, "began": 1767225600.0, "ended": 1767225607.5}
"""

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MEETING_PORT = 29400
MEETING_SECONDS = 120.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder")
    parser.add_argument("--bucket", help="a bucket, instead of a folder")
    parser.add_argument("--endpoint", help="of the bucket's store")
    parser.add_argument("--pods", type=int, default=1, help="that share out the images")
    parser.add_argument(
        "--meet", metavar="HOST", help="of the pod with index 0: read when all pods are there"
    )
    parser.add_argument("--readers", type=int, default=8, help="images that are read at the same time")
    return parser.parse_args()


def of_folder(folder: Path) -> tuple[list[str], Callable[[str], int]]:
    """The images of a folder, and what reads one and gives its size."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return names, lambda name: len((folder / name).read_bytes())


def of_bucket(bucket: str, endpoint: str) -> tuple[list[str], Callable[[str], int]]:
    """The same of a bucket, over HTTP."""
    from obstore.store import S3Store

    keys = keys_of()
    store = S3Store(
        bucket,
        endpoint=endpoint,
        access_key_id=keys["access_key_id"],
        secret_access_key=keys["secret_access_key"],
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    names = sorted(str(meta["path"]) for chunk in store.list() for meta in chunk)
    return names, lambda name: len(store.get(name).bytes())


def meet(host: str, *, pod: int, pods: int) -> None:
    """Return when all pods are here; ends with a sentence where one does not come in two minutes."""
    try:
        if pod:
            _tell(host)
        else:
            _gather(pods - 1)
    except OSError as error:
        sys.exit(
            f"not all of the {pods} pods came to {host}:{MEETING_PORT} in {MEETING_SECONDS:.0f} s: {error}"
        )


def _gather(others: int) -> None:
    """Wait for the other pods, then let all go."""
    until = time.monotonic() + MEETING_SECONDS
    with _listener() as server:
        here = []
        for _ in range(others):
            server.settimeout(max(0.1, until - time.monotonic()))
            here.append(server.accept()[0])
        for one in here:
            one.sendall(b"!")
            one.close()


def _listener() -> socket.socket:
    """At the addresses of both families, where the pod has IPv6."""
    try:
        return socket.create_server(("::", MEETING_PORT), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError):  # without IPv6
        return socket.create_server(("", MEETING_PORT))


def _tell(host: str) -> None:
    """Tell the pod with index 0, whose name is known when it runs, and wait until it lets go."""
    until = time.monotonic() + MEETING_SECONDS
    while True:
        try:
            with socket.create_connection((host, MEETING_PORT), timeout=MEETING_SECONDS) as one:
                if one.recv(1):
                    return
                raise ConnectionResetError("the pod with index 0 ended")
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def number_of(name: str, *, below: int) -> int:
    """A whole number from a variable, 0 where it is not set; ends with a sentence where it cannot be."""
    text = os.environ.get(name, "0")
    if not text.isdecimal() or int(text) >= below:
        sys.exit(f"the variable {name} is {text!r}; it must be a whole number from 0 to {below - 1} (--pods)")
    return int(text)


def keys_of() -> dict[str, str]:
    """The keys of the bucket; ends with a sentence where one is missing."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    if missing := [name for name in names if not os.environ.get(name)]:
        sys.exit(f"the variable {missing[0]} is not set; set both keys of the bucket")
    return {name.removeprefix("AWS_").lower(): os.environ[name] for name in names}


def main() -> None:
    options = arguments()
    pod = number_of("JOB_COMPLETION_INDEX", below=options.pods)
    names, read = of_bucket(options.bucket, options.endpoint) if options.bucket else of_folder(options.data)
    mine = names[pod :: options.pods]
    if options.meet and options.pods > 1:
        meet(options.meet, pod=pod, pods=options.pods)
    with ThreadPoolExecutor(max_workers=options.readers) as pool:
        began = time.time()
        size = sum(pool.map(read, mine))
        ended = time.time()
    print(json.dumps({"images": len(mine), "bytes": size, "began": began, "ended": ended}), flush=True)


if __name__ == "__main__":
    main()
