"""Serves the files of a PersistentVolumeClaim to the agents of a cache, from a pod that mounts it."""
