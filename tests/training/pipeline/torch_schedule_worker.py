"""A stage under PyTorch's own schedule: prints how far its gradients are from those of the whole model."""

import contextlib
import copy
import datetime
import json
import os

import torch
import torch.distributed as distributed
from tests.training import models, threads

from tdcs_train.errors import ended_by_input_errors
from tdcs_train.model.splitting import split
from tdcs_train.model.tracing import trace
from tdcs_train.pipeline import torch_schedule
from tdcs_train.pipeline.order import place_of


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(4)
    rank, replicas = int(os.environ["RANK"]), json.loads(os.environ["REPLICAS"])
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    whole = threads.chain([6, 10, 9, 8, 4])
    cut = split(
        trace(copy.deepcopy(whole)), [["node2", "node3", "node4", "node5"], ["node6", "node7", "node8"]]
    )
    inputs, labels = torch.randn(12, 6), torch.randint(4, (12,))
    models.cross_entropy(whole(inputs), labels).backward()
    place = place_of(rank, replicas)
    with torch_schedule.mended() if os.environ["MENDED"] == "yes" else contextlib.nullcontext():
        schedule = torch_schedule.schedule(cut, place, loss=models.cross_entropy, micro_batches=4)
        schedule.step(*([inputs] if place.is_first else []), **({"target": labels} if place.is_last else {}))
    part = cut.parts[place.stage]
    wanted = dict(whole.named_parameters())
    differences = []
    for name, parameter in part.module.named_parameters():
        gradient, other = parameter.grad, wanted[part.names[name]].grad
        assert gradient is not None
        assert other is not None
        differences.append(float((gradient - other).abs().max()))
    print(json.dumps({"difference": max(differences)}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    with ended_by_input_errors():
        main()
