"""`tdcs-train order`: in which order the parameters of a model should travel."""

from pathlib import Path

import click

from tdcs_train.cli.options import BANDWIDTH, print_json, read_profile
from tdcs_train.plan.order_plan import OrderPlan, document, plan_order
from tdcs_train.plan.transfer_order import Rule


@click.command("order")
@click.option("--profile", type=click.Path(path_type=Path), required=True, help="The profile of the model.")
@click.option(
    "--bandwidth", type=BANDWIDTH, required=True, help="Between worker and server, like 1Gbit or 125MB."
)
@click.option(
    "--rule",
    type=click.Choice([rule.value for rule in Rule]),
    default=Rule.SEARCHED.value,
    show_default=True,
    help="count: by dependent operations. timed: by the computation set free. searched: the better one, improved.",
)
@click.option(
    "--orders",
    type=click.IntRange(min=1, max=10_000),
    default=100,
    show_default=True,
    help="How many random orders to compare with.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random orders."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(*, profile: Path, bandwidth: float, rule: str, orders: int, seed: int, as_json: bool) -> None:
    """Order the transfers of a profiled model.

    For data parallel training with a parameter server: each layer waits for its own parameters only. Prints the
    priority of each layer's parameters and the simulated iteration time in random and in planned order.
    """
    plan = plan_order(read_profile(profile), bandwidth=bandwidth, rule=Rule(rule), orders=orders, seed=seed)
    if as_json:
        print_json(document(plan))
    else:
        click.echo(_text(plan))


def _text(plan: OrderPlan) -> str:
    iteration = plan.iteration
    lines = [f"{'priority':>8}  {'seconds':>9}  layer"]
    for number in plan.order:
        transfer = iteration.transfers[number]
        description = plan.graph.layers[transfer.layer].description
        lines.append(
            f"{plan.priorities[number]:>8}  {transfer.seconds:>9.6f}  {transfer.layer} {description[:60]}"
        )
    planned, random = plan.planned_seconds, plan.random_mean_seconds
    lines += [
        "",
        f"computation {iteration.compute_seconds:.6f} s, transfers {iteration.transfer_seconds:.6f} s",
        (
            f"iteration {planned:.6f} s as planned, {random:.6f} s in random order "
            f"(mean of {len(plan.random_seconds)}): {planned / random:.3f} of it"
        ),
        f"overlap {plan.overlap(planned):.3f} as planned, {plan.overlap(random):.3f} in random order",
        f"efficiency {plan.efficiency(planned):.3f} as planned, {plan.efficiency(random):.3f} in random order",
    ]
    if planned > 0.97 * random:
        lines.append("the order hardly matters here: less than 3 % of the iteration")
    return "\n".join(lines)
