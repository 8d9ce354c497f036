"""Whose turn it is: places at datasets, places on nodes, quotas."""
