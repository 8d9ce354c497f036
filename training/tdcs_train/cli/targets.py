"""`tdcs-train targets`: the targets there are, and what this node is."""

import json

import click

from tdcs_train.artifacts.node import this_node
from tdcs_train.artifacts.targets import TARGETS
from tdcs_train.backends.registry import find, names
from tdcs_train.errors import InputError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show the targets that models can be compiled for, which of them this node runs, and the back ends."""
    node = this_node()
    best = node.targets[0].name if node.targets else None
    missing = {target.name: sorted(target.features - node.features) for target in TARGETS}
    if as_json:
        summary = {"machine": node.machine, "best": best, "tvm": node.tvm, "backends": names()}
        click.echo(json.dumps({**summary, "missing": missing, "features": sorted(node.features)}))
        return
    click.echo(f"this node: {best or f'{node.machine}, for which there is no target'}")
    for target in TARGETS:
        lacks = missing[target.name]
        click.echo(
            f"  {target.name:<12}{'runs here' if target in node.targets else 'lacks ' + ' '.join(lacks)}"
        )
    click.echo(f"TVM: {node.tvm or 'not installed'}")
    for name in names():
        try:
            packages = [
                library.package for library in find(name).libraries if not node.has_library(library.soname)
            ]
            state = f"needs the Debian package {', '.join(packages)}" if packages else "ready"
        except InputError as error:
            state = str(error)
        click.echo(f"  back end {name}: {state}")
