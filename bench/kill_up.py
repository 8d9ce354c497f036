"""Kills ``up`` at random moments and lets the next one finish: does the cluster come up each time?

    python bench/kill_up.py                      five kills, a cluster named tdcs-kill
    python bench/kill_up.py --kills 10 --seed 3
    python bench/kill_up.py --fresh-cache        with an empty cache: kills fall into builds, too

The first run is measured and removed; each kill then falls uniformly into that time. Prints one JSON line; the exit
status is 0 only if every ``up`` after a kill succeeded and nothing was left after the last ``down``.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


def command(word: str, *, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A command of the local tool, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tdcs_local", word], cwd=CHECKOUT, env=dict(env), start_new_session=True
    )


def finish(word: str, *, env: Mapping[str, str]) -> tuple[bool, float]:
    """Runs a command to its end: whether it succeeded, and the seconds it took."""
    begin = time.monotonic()
    return command(word, env=env).wait() == 0, time.monotonic() - begin


def killed_after(seconds: float, *, env: Mapping[str, str]) -> bool:
    """Starts ``up`` and kills it after some seconds; False if it had ended by then."""
    process = command("up", env=env)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)  # the tool alone: what it started must end by itself
        process.wait()
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", default="tdcs-kill")
    parser.add_argument("--fresh-cache", action="store_true", help="an empty TDCS_CACHE for this run")
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311 - moments, not secrets
    env = {**os.environ, "TDCS_CLUSTER": options.cluster, "PYTHONPATH": str(CHECKOUT / "deploy" / "local")}
    with tempfile.TemporaryDirectory(prefix="tdcs-kill-") as cache:
        if options.fresh_cache:
            env["TDCS_CACHE"] = cache
        good, whole = finish("up", env=env)
        if not good:
            print(json.dumps({"bench": "kill_up", "error": "the first up failed"}))
            return 1
        rounds: list[dict[str, object]] = []
        for _ in range(options.kills):
            finish("down", env=env)
            moment = chance.uniform(0, whole)
            killed = killed_after(moment, env=env)
            up, seconds = finish("up", env=env)
            working, _ = finish("status", env=env)
            rounds.append(
                {
                    "killed_after_s": round(moment, 1),
                    "killed": killed,
                    "next_up_ok": up and working,
                    "next_up_s": round(seconds, 1),
                }
            )
        is_down, _ = finish("down", env=env)
    good = is_down and all(entry["next_up_ok"] for entry in rounds)
    print(json.dumps({"bench": "kill_up", "whole_up_s": round(whole, 1), "ok": good, "rounds": rounds}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
