"""The stores of an attacker, in one process: `false_stores.py`, next to `flat_store.py` and `countless_store.py`.

The first answers as S3 does, the second sends every reader to the cloud's metadata, the third lists five million names.
"""

from __future__ import annotations

HOST = "0.0.0.0"  # noqa: S104 -- the container's own network
HONEST_PORT, REDIRECTING_PORT, COUNTLESS_PORT = 9000, 9001, 9002
METADATA = "http://169.254.169.254/latest/meta-data/iam/security-credentials"
NAMES = 5_000_000
OBJECTS = {f"train/{number}": 1000 for number in range(4)}


def main() -> None:
    """Serve until the process is killed."""
    # In the container they are next to this file; the tests, which read the ports above, have them in a package.
    from countless_store import serve  # type: ignore[import-not-found]
    from flat_store import Answers, flat_store  # type: ignore[import-not-found]

    away = Answers()
    away.redirection = (307, METADATA)
    with (
        flat_store(address=HOST, objects=OBJECTS, port=HONEST_PORT),
        flat_store(address=HOST, objects=OBJECTS, port=REDIRECTING_PORT, answers=away),
    ):
        serve(HOST, NAMES, port=COUNTLESS_PORT)


if __name__ == "__main__":
    main()
