"""The text of a program that trains by a plan, for one of several runtimes."""

import json
import math
from typing import Literal

from tdcs_train.errors import InputError
from tdcs_train.plan.pipeline_plan import PipelinePlan, document

Runtime = Literal["torch", "deepspeed", "tdcs"]
RUNTIMES: tuple[Runtime, ...] = ("torch", "deepspeed", "tdcs")

_NAMES = {
    "torch": "torch.distributed.pipelining",
    "deepspeed": "DeepSpeed",
    "tdcs": "the pipeline of tdcs_train (mode stash)",
}
_IMPORTS = {
    "torch": "from tdcs_train.runtimes.torch_pipelining import TorchPipeline",
    "deepspeed": "from tdcs_train.runtimes.deepspeed_pipeline import DeepSpeedPipeline",
    "tdcs": "from tdcs_train.peers.rendezvous import membership_from\n"
    "from tdcs_train.pipeline.runtime import Pipeline, Recipe\n"
    "from tdcs_train.pipeline.worker import Settings",
}
_SHARED = """\
from tdcs_train.pipeline.runtime import Recipe
from tdcs_train.pipeline.worker import Settings
"""
_BODIES = {
    "torch": """\
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    pipeline = TorchPipeline(recipe, plan, inputs=subject.batch()[0])
    for step in range(STEPS):
        loss = pipeline.step(*subject.batch())
        if pipeline.place.rank == 0:
            print(json.dumps({"step": step, "loss": loss}), flush=True)
    torch.distributed.destroy_process_group()
""",
    "deepspeed": """\
    pipeline = DeepSpeedPipeline(recipe, plan, inputs=subject.batch()[0])
    for step in range(STEPS):
        loss = pipeline.step(*subject.batch())
        if pipeline.place.rank == 0:
            print(json.dumps({"step": step, "loss": loss}), flush=True)
""",
    "tdcs": """\
    membership = membership_from(facts={"model": MODEL}, timeout=300.0)
    torch.manual_seed(1 + membership.rank)  # workers of the first stage read different data
    with Pipeline(recipe, plan, membership) as pipeline:
        own = iter(subject.batch, None) if pipeline.is_first else None
        summary = pipeline.train(own, count=STEPS * MICRO_BATCHES)
        if pipeline.place.rank == 0:
            print(json.dumps({"loss": summary.loss, "seconds": summary.seconds}), flush=True)
""",
}


def program(plan: PipelinePlan, runtime: Runtime, *, model: str, micro_batches: int, steps: int) -> str:
    """A program for torchrun that makes the model of `FILE.py:MODEL` as every worker does, and trains it by the plan.

    A micro-batch has the samples that the profile was measured with.

    Raises:
        InputError: The runtime cannot run such a plan, or the profile does not say what it was measured with.
    """
    plan = plan.advised
    shape = "-".join(map(str, plan.replicas))
    if runtime != "tdcs" and len(set(plan.replicas)) > 1:
        raise InputError(
            f"the plan {shape} has stages with different numbers of workers, and {_NAMES[runtime]} wants as many in "
            "each: plan with --straight, or write a program for tdcs"
        )
    if runtime == "deepspeed" and len(plan.stages) == 1:
        raise InputError(
            f"{plan.advice}; DeepSpeed's pipeline wants two stages at least: use its data parallelism"
        )
    if not plan.inputs or not plan.inputs[0].shape:
        raise InputError(
            "the profile does not say which inputs it was measured with; profile the model with tdcs-train profile"
        )
    size = plan.inputs[0].shape[0]
    factor = 1 if runtime == "tdcs" else micro_batches * plan.replicas[0]
    if runtime == "tdcs":
        micro_batches = math.lcm(*plan.replicas)
    samples = size * factor
    mode = 'mode="stash"' if runtime == "tdcs" else 'mode="flush", micro_batches=MICRO_BATCHES'
    imports = _IMPORTS[runtime] if runtime == "tdcs" else _SHARED + _IMPORTS[runtime]
    preamble = "import json\nimport os\n" if runtime == "torch" else "import json\n"
    return f'''"""{plan.advice.capitalize()}: for {_NAMES[runtime]}, written by tdcs-train plan.

    torchrun --nproc-per-node {plan.workers} THIS_FILE

Expected are {plan.expected_seconds:.6f} seconds for each {size} samples, with the pipeline full.
"""

{preamble}
import torch

from tdcs_train.errors import ended_by_input_errors
from tdcs_train.model.script import imports_of, subject_of
from tdcs_train.pipeline.plan_file import plan_of
{imports}

MODEL, OPTIMIZER = {json.dumps(model)}, "optimizer"
SAMPLES, MICRO_BATCHES, STEPS = {samples}, {micro_batches}, {steps}
"""Samples of all workers in a step."""
PLAN = json.loads(
    r"""{json.dumps(document(plan))}"""
)


def main() -> None:
    torch.manual_seed(0)  # every worker makes the same model, and the same mini-batches
    with imports_of(MODEL):
        subject = subject_of(MODEL, batch=SAMPLES, optimizer_name=OPTIMIZER)
    plan = plan_of(PLAN, source="PLAN")
    recipe = Recipe(
        model=subject.model,
        loss=subject.loss,
        optimizer=lambda parameters, _: subject.optimizer(parameters),
        learning_rate=1.0,
        settings=Settings({mode}),
    )
{_BODIES[runtime]}

if __name__ == "__main__":
    with ended_by_input_errors():
        main()
'''
