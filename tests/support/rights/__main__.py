"""The commands of `tests/tiers.py`: record what was used on the local cluster, and compare at the end of a run."""

from __future__ import annotations

import argparse
import functools
import operator
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.controlplane.audit import calls_of
from tests.support.rights.comparison import Use, comparable, findings, rights_in, use_of
from tests.support.rights.exceptions import RARE, REFUSALS, UNGRANTED, UNUSED, WIDE
from tests.support.rights.granted import granted_by_chart
from tests.support.rights.records import record, recorded

from tdcs_local.errors import LocalError
from tdcs_local.kind import audit, cluster

TIERS = ("controlplane", "e2e")
"""Those that have an API server."""


def main(argv: Sequence[str]) -> int:
    """Run one of the commands; the exit status is 0 only if nothing is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.rights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    cluster_command = commands.add_parser(
        "cluster", help="record what was used on the local cluster, for the tier e2e"
    )
    cluster_command.add_argument(
        "--since", default="", help="leave out what was before, such as 2026-01-31T12:00:00Z"
    )
    two = commands.add_parser("compare", help="what is granted with what was used")
    two.add_argument("folder", type=Path, help="of the records")
    options = parser.parse_args(argv)
    try:
        return _cluster(options.since) if options.command == "cluster" else _compare(options.folder)
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _cluster(since: str) -> int:
    with tempfile.TemporaryFile() as log:
        audit.read(cluster=cluster.name(), into=log)
        log.seek(0)
        use = use_of(calls_of(log, since=since))
    if not use.used:
        print("the audit log of the local cluster has no request of TDCS's accounts")
        return 1
    record(use, tier="e2e")
    return 0


def _compare(folder: Path) -> int:
    by_tier = recorded(folder)
    missing = [tier for tier in TIERS if tier not in by_tier]
    use = functools.reduce(operator.or_, by_tier.values(), Use())
    plain, kueue = granted_by_chart()
    grants = comparable(plain, kueue=kueue, use=use)
    granted, of_kueue = rights_in(grants), rights_in(kueue)
    for tier, tier_use in by_tier.items():
        print(f"{tier} used {len(tier_use.used & granted)} of {len(granted)} rights that the chart grants")
    if granted.isdisjoint(of_kueue):
        print(
            f"not compared: {len(of_kueue)} rights for Kueue, which was not there (`make ecosystem` builds it)"
        )
    if missing:
        idle = len(granted - use.used)
        print(
            f"{idle} were not used; whether any tier needs them is known once {', '.join(missing)} ran, too"
        )
    else:
        print(*(f"granted without use: {right} ({reason})" for right, reason in UNUSED.items()), sep="\n")
        print(
            *(f"granted more widely than used: {right} ({reason})" for right, reason in WIDE.items()),
            sep="\n",
        )
    unexplained = findings(
        use=use,
        grants=grants,
        ungranted=UNGRANTED,
        unused=UNUSED,
        rare=RARE,
        wide=WIDE,
        refusals=REFUSALS,
        complete=not missing,
    )
    print(*unexplained, sep="\n")
    if unexplained:
        print("change the chart's roles, or give the reason in tests/support/rights/exceptions.py")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
