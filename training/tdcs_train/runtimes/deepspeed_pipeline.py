"""The stages of a plan in DeepSpeed: a PipelineModule whose layers are the stages, one for each."""

from collections.abc import Iterator
from typing import Any

import torch

from tdcs_train.model.splitting import split
from tdcs_train.pipeline.order import place_of
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Recipe, traced_by
from tdcs_train.runtimes.inputs import check_recipe, check_replicas, label_tensors, positional, sliced
from tdcs_train.runtimes.stage_module import StageModule, kinds_of, loss_of_leaving


def configuration(plan: StagePlan, *, micro_batches: int, samples: int) -> dict[str, Any]:
    """DeepSpeed's configuration for mini-batches of so many samples, of all replicas together.

    Raises:
        PlanError: Stages have different numbers of replicas.
    """
    check_replicas(plan, runtime="DeepSpeed")
    return {
        "train_batch_size": samples,
        "train_micro_batch_size_per_gpu": samples // (micro_batches * plan.replicas[0]),
        "gradient_accumulation_steps": micro_batches,
        "gradient_clipping": 0.0,  # else DeepSpeed clips their norm to 1
        "zero_optimization": {"stage": 0},
        "pipeline": {"activation_checkpoint_interval": 0},
    }


class DeepSpeedPipeline:
    """This worker's stage in DeepSpeed's engine, which decides on the device and the transport.

    All workers make the same calls with the same mini-batch. The recipe's learning rate is used as it is.

    Raises:
        PlanError: Stages have different numbers of replicas, the recipe has a setting that the runtime has not, or the
            mini-batch cannot be divided.
        ModelError: What passes between stages cannot be known before.
    """

    def __init__(self, recipe: Recipe, plan: StagePlan, *, inputs: Any) -> None:
        import deepspeed
        from deepspeed.pipe import PipelineModule

        check_recipe(recipe, runtime="DeepSpeed")
        self._micro = recipe.settings.micro_batches
        model = split(traced_by(recipe, plan), plan.stages)
        arguments = positional(model, inputs)
        settings = configuration(plan, micro_batches=self._micro, samples=len(arguments[0]))
        _use_no_operator_to_compile()
        deepspeed.init_distributed()
        self.place = place_of(torch.distributed.get_rank(), plan.replicas)
        kinds = kinds_of(model, sliced(arguments, replica=0, replicas=self.place.own * self._micro))
        stages = [
            StageModule(model, number, kinds, recomputes=number in plan.recomputing)
            for number in range(len(plan.stages))
        ]
        self.stage, self._model = stages[self.place.stage], model
        pipeline = PipelineModule(
            layers=stages,
            num_stages=len(stages),
            partition_method="uniform",
            loss_fn=loss_of_leaving(model, kinds, recipe.loss),
        )
        parameters = [parameter for parameter in self.stage.parameters() if parameter.requires_grad]
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=pipeline, optimizer=recipe.optimizer(parameters, recipe.learning_rate), config=settings
        )
        # Some versions divide gradients by the number of micro-batches at every stage (DeepSpeed's issue 8152), and not
        # only the loss of the last one.
        self.engine._backward_prologue_per_tensor = lambda gradient: gradient

    def step(self, inputs: Any, labels: Any) -> float:
        """Trains with a mini-batch of all workers; its loss, which all workers are given."""
        return float(self.engine.train_batch(data_iter=self._parts(inputs, labels)))

    def _parts(self, inputs: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
        replica, replicas = self.place.replica, self.place.own
        arguments = sliced(positional(self._model, inputs), replica=replica, replicas=replicas)
        marks = sliced(label_tensors(labels), replica=replica, replicas=replicas)
        for micro in range(self._micro):
            micro_batch = sliced(arguments, replica=micro, replicas=self._micro)
            of_own = sliced(marks, replica=micro, replicas=self._micro)
            yield micro_batch, of_own if len(of_own) > 1 else of_own[0] if of_own else ()


def _use_no_operator_to_compile() -> None:
    """On processors DeepSpeed would compile an all-reduce of its own, also where there is no compiler; gloo has one."""
    from deepspeed import ops
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() == "cpu":
        ops.__compatible_ops__["deepspeed_shm_comm"] = False
