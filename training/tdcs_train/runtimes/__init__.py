"""Stages of a plan for the pipelines of other packages: torch.distributed.pipelining and DeepSpeed."""
