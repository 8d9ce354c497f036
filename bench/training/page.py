"""Writes docs/training-results.md from the results of the benchmarks of tdcs-train.

python -m bench.training.page
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.training.records import exists, read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training-results.md"
HEAD = """\
# Results of tdcs-train

This page is made by `make training-docs` from the files in `bench/training/results`; each table names the program that
wrote its file. Dates are those on which the figures were committed. The last two need the local cluster and are run by
hand. How to use the package is in [When the network is the bound](how-to/slow-links.md).
"""
SECTIONS: dict[str, tuple[str, str]] = {
    "zoo": (
        "Models as people write them",
        """\
Models in the usual styles (`tests/training/model/zoo.py`) and small ones of `transformers` 4.57.6 from their configs
(`transformers_models.py`), profiled, planned and run as three stages in mode `flush`,
beside one process with the same mini-batches; a row with `runs` had losses that differ by no more than 1e-5. The others
are refused before anything runs, with the sentence in the row.""",
    ),
    "plans": (
        "Plans of the published profiles",
        """\
The profiles that PipeDream published, with parameter-server synchronisation. In rows marked straight each stage has one
worker, and transfers are ignored. What does not gain: rows with 1 or little more in the last but one column, where few
parameters are averaged against much computation.""",
    ),
    "orders": (
        "Orders of transfers, simulated",
        """\
Iteration time over the best of all orders on random graphs, and over the mean of 50 random ones on published profiles.
What does not gain: links on which transfers take a small part of the computation's time, or many times as long.""",
    ),
    "transfers": (
        "Orders of transfers, measured",
        """\
A worker and a parameter server in network namespaces of their own, on a link of the rate given; iterations in the
planned order beside ten random ones (four at ratio 20). The published figures are of another framework and machine.
What does not gain: ratios of 0.05 and 20, and ResNet32 at ratio 1.""",
    ),
    "averaging": (
        "Gradients by priority",
        """\
Two workers over gloo in network namespaces of their own: DistributedDataParallel as it is, and with
`tdcs_train.data_parallel`, which sends gradients in slices by first use where its own trial of both ways finds that
faster, in turns after that trial, with equal losses. Layers sleep for the times of a published profile, as those of an
accelerator take no time of the processor, and have parameters in its proportions, 32 MB together. The link's rate is
such that averaging takes `averaging over computation` times the computation. What does not gain: links on which
averaging takes half of the computation, and is hidden behind backward anyway. In the 24 iterations of the trial an
iteration takes `trial over plain` times as long as a plain one: they begin with one that sees the order of use, and
plain ones go through the hook, with one more pass over the gradients. When the trial ends with plain ones, the hook is
removed; with it alexnet at 0.5 had 0.94.""",
    ),
    "classes": (
        "Two workers on one link",
        """\
A server and two workers in network namespaces of their own. One worker sends an urgent tensor while the other sends a
larger one that is not; only the network can keep their order, by the mark (DSCP) in the packets.""",
    ),
    "links": (
        "Parallelism at three speeds of the link",
        """\
Two workers with a thread each, a model of 8.5 million parameters, and links at which averaging its gradients takes
0.2, 1 and 4 times the computation. Each plan is that of the measured link and of a profile, updates included, that both
workers took at the same time just before. Beside it all ways were measured: one worker, DDP over gloo, and the pipeline
(mode `stash`) with every straight cut. The speeds, in samples a second, are from an empty pipeline to an empty one, and
show what does not gain. `measured_seconds` are those of a mini-batch while the pipeline is full: the planner expects
the bottleneck, or more where transfers are too long to be hidden by the mini-batches in flight.""",
    ),
    "predictions": (
        "Predicted mini-batches over a slow link",
        """\
Ten random chains of layers that sleep, with real tensors and parameters, planned for two or three workers and a link of
100 Mbit/s with 1 ms, and run in mode `stash` over such a link: `predicted s` is the planner's `expectedSeconds`,
`measured s` a mini-batch of the full pipeline.""",
    ),
    "replicated": (
        "Predicted mini-batches of replicated stages",
        """\
As above, with three workers and chains of which one part has most of the computation and few parameters, so that the
planner gives one stage two workers, which average their gradients: the first (2-1) or the last (1-2).""",
    ),
    "bubbles": (
        "What the order of a pipeline costs",
        """\
Four stages that sleep 20 ms forward and backward and compute nothing; of the bound of one mini-batch in 40 ms, from an
empty pipeline to an empty one. In mode `stash` with the published number in flight the way of a mini-batch has no
slack, so whatever passes between the end of one stage's act and the beginning of the next one's is lost. One more in
flight for each stage behind a worker (`stash, one ahead`: `--ahead 1`) hides a part of it. Filling and emptying takes
120 ms of a run; `full_of_bound` is without that. What is left are the workers' own steps: four share two cores here.
Flushing 8 micro-batches can reach 8/11 = 0.727 at most, PyTorch's Schedule1F1B too.""",
    ),
    "digits": (
        "Digits to 97 %",
        """\
Two workers each; epochs and seconds until 97 of 100 digits that were not trained with are classified right. The link is
loopback, so the seconds say what a pipeline costs where nothing is to be gained.""",
    ),
    "actors": (
        "Cost of the actor runtime",
        "Actors that do nothing.",
    ),
    "loader": (
        "The loader beside PyTorch's DataLoader and tf.data",
        """\
The same JPEG files, from a local folder, with as many decoders, nothing else computed; median of five runs in turn.
tf.data has a decoder of its own, in threads, and runs after the others.""",
    ),
    "loader_claim": (
        "The loader in a pod, through the claim of a Dataset",
        "The same on the local cluster of three nodes on one machine, whose other programs share its cores.",
    ),
    "cluster": (
        "Jobs on a cluster with slow links",
        """\
The local cluster of three nodes on one machine; what a node sends is shaped to 100 Mbit/s. The network of
`train_images_torch.py:wide` (5 million parameters) on digits. `tdcs-train link` measured the links, `tdcs-train plan
--job` wrote the TrainingJob, and the same job ran data parallel beside it. A pod that is killed takes the others with
it; all go on from the newest checkpoint, and end with the loss of the undisturbed job.""",
    ),
}
"""Titles and words of the tables, in order."""

OLD_PROTOCOL = (
    "before versions 2 and 3 of the protocol between workers, which need less processor time for a mini-batch"
)
MEASURED = {
    "zoo": "Run on 2026-12-01.",
    "plans": "Computed on 2026-11-22.",
    "orders": "Simulated on 2026-11-22.",
    "transfers": """\
The rows are of two runs on 2026-11-23. Those of VGG16, of ResNet32 at ratio 1 and of CNN+LSTM at ratios 1 and 20 are of
the first, in which all orders ran in turn. Those of ResNet32 at ratio 2 and of CNN+LSTM at ratio 0.05 are of the
second, in which the planned order ran once beside every random one. CNN+LSTM at ratio 0.05 was 0.8667 in the first and
is 0.9884 in the second; the former row was replaced. ResNet32 was measured at ratio 2 after ratio 1 had given
0.9945.""",
    "averaging": """\
Measured on 2026-11-30, on a machine with much other work, which these workers preempt. Two rows were measured again:
vgg16 at 0.5 had 0.94 while the machine had 89 processes that wanted to run, and resnet50 at 0.5 had 0.971 before
operators passed without a look after the trial. The row of vgg16 at 2.0 is of 2026-11-29, when the hook's trial was in
the turns.""",
    "classes": "Measured on 2026-11-23.",
    "links": f"One run on 2026-11-23, {OLD_PROTOCOL}.",
    "predictions": "Measured on 2026-11-30, on a machine with much other work, which workers and link preempt.",
    "replicated": "Measured on 2026-12-01, on a machine with much other work, which workers and link preempt.",
    "bubbles": """\
Two runs of each way in turn on 2026-11-23, on a machine with much other work, which these workers preempt.""",
    "digits": f"""\
One run on 2026-11-23, {OLD_PROTOCOL}.
Three seeds say little: seed by seed, `stash` took 0.89, 0.70 and 1.50 times the epochs of data parallel.""",
    "actors": "Measured on 2026-11-22.",
    "loader": "Measured on 2026-11-23.",
    "loader_claim": "Measured on 2026-11-23.",
    "cluster": f"One run on 2026-11-23, {OLD_PROTOCOL}.",
}
"""When a table was measured, and on which code where that has changed since; whoever measures again writes it anew."""

COMMANDS = {
    "cluster": "TDCS_DEEP=1 python -m pytest e2e/training/test_slow_links.py",
    "replicated": "python -m bench.training.predictions --replicated",
}
"""Where a table is not written by the benchmark of its name."""


def main() -> None:
    """Write the page."""
    parts = [HEAD]
    for name, (title, words) in SECTIONS.items():
        command = COMMANDS.get(name, f"python -m bench.training.{name}")
        if not exists(name):
            parts.append(f"## {title}\n\nNot measured yet: `{command}`.\n")
            continue
        machine, rows = read(name)
        where = ", ".join(f"{key} {value}" for key, value in machine.items())
        parts.append(f"## {title}\n\n{words}\n")
        parts.append(f"{MEASURED[name]}\n")
        parts.append(f"`{command}` ({where}).\n")
        parts += [table(group) + "\n" for group in _alike(rows)]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table; a column for every field."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Neighbouring rows in groups that share most of their fields."""
    groups: list[list[Mapping[str, Any]]] = []
    for row in rows:
        if groups and len(set(row) & set(groups[-1][0])) >= len(set(row) | set(groups[-1][0])) / 2:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {part}" for key, part in value.items())
    return str(value).replace("|", "/")


if __name__ == "__main__":
    main()
