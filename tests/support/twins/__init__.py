"""Twins of the cache engine and of its agents, in memory, and an operator that runs on them."""
