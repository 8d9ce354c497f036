"""Data parallel training whose gradients travel in the order in which the next forward needs them."""

from tdcs_train.data_parallel.averaging import PriorityAveraging

__all__ = ["PriorityAveraging"]
