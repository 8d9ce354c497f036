"""Pipelines of stages: 1F1B with weight stashing or flushes, over the network or in one process."""
