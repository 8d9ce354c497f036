"""Blocks made known to the worker, and removed from it."""
