"""TDCS: task and data co-located scheduling of deep-learning jobs on Kubernetes."""

__version__ = "0.1.0.dev0"
"""As in pyproject.toml. What would read it from the installation takes 0.7 MiB in each process of each node."""
