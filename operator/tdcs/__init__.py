"""TDCS: task and data co-located scheduling of deep-learning jobs on Kubernetes."""

__version__ = "0.1.0"
"""Of all that is released: pyproject.toml takes it from here, `make version` writes it into the others. What would read
it from the installation takes 0.7 MiB in each process of each node."""
