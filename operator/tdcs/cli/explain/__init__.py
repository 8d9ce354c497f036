"""`tdcs explain`: why a job waits, why a pod is where it is, and what of a dataset is cached."""
