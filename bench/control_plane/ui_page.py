"""How soon `tdcs ui` shows a cluster of 1000 nodes and 500 jobs, and the memory that it takes. Prints one JSON line.

The command is the real one, against an API server's stand-in (so that nothing else takes its time), and the page is in
a real Chromium. The time is from the request for the page, the command having just been started, until every row is on
it. From the root of the checkout::

    python -m bench.control_plane.ui_page
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.kube.api_stand_in import ApiStandIn
from tests.support.kube.live_world import cluster
from tests.support.programs.browser import Browser

BAR_SECONDS, BAR_MEGABYTES = 2.0, 100.0
DATASETS = 24


async def seen(address: str, *, folder: Path, rows: int) -> tuple[float, bytes]:
    """Seconds until all is shown, and what is seen then, as a PNG."""
    async with Browser(folder=folder) as browser:
        began = time.perf_counter()
        await browser.open(address)
        await browser.until(f"document.body?.dataset.rows == {rows}", seconds=60)
        seconds = time.perf_counter() - began
        return seconds, await browser.screenshot()


def look(*, nodes: int, jobs: int, screenshot: Path | None) -> dict[str, float]:
    """Seconds until all is shown, and the command's most memory, in megabytes."""
    with tempfile.TemporaryDirectory(prefix="ui-page-") as name:
        folder = Path(name)
        with ApiStandIn(cluster(nodes=nodes, jobs=jobs, datasets=DATASETS)) as api:
            process = subprocess.Popen(
                [sys.executable, "-m", "tdcs.cli", "ui", "--port=0"],
                env={**os.environ, "KUBECONFIG": str(api.kubeconfig(folder))},
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert process.stdout is not None
                match = re.search(r"http://\S+", process.stdout.readline())
                assert match is not None
                rows = nodes + jobs + DATASETS
                seconds, picture = asyncio.run(seen(match.group(), folder=folder, rows=rows))
                if screenshot is not None:
                    screenshot.write_bytes(picture)
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
            finally:
                process.terminate()
                process.wait(timeout=20)
    return {"seconds": seconds, "megabytes": int(peak.split()[1]) / 1024}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--screenshot", type=Path, help="write the page as a PNG")
    options = parser.parse_args()
    looks = [
        look(nodes=options.nodes, jobs=options.jobs, screenshot=options.screenshot)
        for _ in range(options.runs)
    ]
    seconds, megabytes = (max(figures[field] for figures in looks) for field in ("seconds", "megabytes"))
    result = {
        "bench": "ui_page",
        "nodes": options.nodes,
        "jobs": options.jobs,
        "secondsWorst": round(seconds, 2),
        "peakMegabytes": round(megabytes, 1),
        "bar": {"seconds": BAR_SECONDS, "megabytes": BAR_MEGABYTES},
        "passed": seconds <= BAR_SECONDS and megabytes <= BAR_MEGABYTES,
        "cpus": os.cpu_count(),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
