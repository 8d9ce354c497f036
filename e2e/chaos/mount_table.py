"""Runs in a node plugin's container, which may ask for it: prints the paths that Alluxio's master has mounted.

python3 -c PROGRAM HOST:PORT
"""

import asyncio
import sys
from pathlib import Path

from tdcs.alluxio import AlluxioEngine
from tdcs.trust.identity import Identify, TrustFolder

TRUST = Path("/etc/tdcs/trust")
PATIENCE = 10.0


async def print_mounts(master: str, identify: Identify | None) -> None:
    """Print a line for each of them; `identify` gives the certificate to show."""
    engine = AlluxioEngine(master=master, patience=PATIENCE, identify=identify)
    try:
        for path in await engine.mounts():
            print(path)
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(print_mounts(sys.argv[1], TrustFolder(TRUST) if TRUST.is_dir() else None))
