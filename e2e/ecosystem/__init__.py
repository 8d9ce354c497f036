"""Other projects' managers on the local cluster, by their own charts: Kueue, JobSet, Kubeflow Trainer.

They run where `make ecosystem` has built them; elsewhere the tests are skipped.
"""
