"""Brings blocks, from the source and from other agents, and makes them known to the worker."""
