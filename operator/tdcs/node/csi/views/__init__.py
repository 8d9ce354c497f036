"""Versions of datasets as folders that pods read."""
