"""Datasets: their status, their conditions, and the share of the cache that they are granted."""
