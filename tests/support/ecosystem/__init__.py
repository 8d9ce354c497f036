"""Managers of other projects as processes next to a control plane: Kueue, JobSet, Kubeflow Trainer.

They are built from pinned Go modules by `make ecosystem`. Where one is not built, tests that need it are skipped.
"""
