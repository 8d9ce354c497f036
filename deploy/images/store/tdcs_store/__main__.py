"""``python3 -m tdcs_store control|link``: the two processes next to the gateway."""

import argparse
from pathlib import Path

from . import http, link
from .control import Control

LINK_PORT, GATEWAY_COUNTERS_PORT = 7072, 7071


def main() -> None:
    """Parse the command line and run until killed."""
    parser = argparse.ArgumentParser(prog="tdcs_store", description=__doc__)
    parser.add_argument("role", choices=["control", "link"])
    parser.add_argument("--root", type=Path, default=Path("/data"), help="the store's volume")
    parser.add_argument("--s3-port", type=int, default=7070)
    parser.add_argument("--listen", default="0.0.0.0:8080", help="where control listens")
    arguments = parser.parse_args()
    if arguments.role == "link":
        link_file = arguments.root / "state" / "link.json"
        link.serve(link_file=link_file, s3_port=arguments.s3_port, listen=("127.0.0.1", LINK_PORT))
    else:
        host, _, port = arguments.listen.rpartition(":")
        control = Control(
            root=arguments.root,
            link_url=f"http://127.0.0.1:{LINK_PORT}/",
            gateway_url=f"http://127.0.0.1:{GATEWAY_COUNTERS_PORT}",
        )
        http.serve(control=control, listen=(host, int(port)))


if __name__ == "__main__":
    main()
