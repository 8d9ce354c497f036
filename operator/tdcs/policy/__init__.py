"""Decisions as pure functions over plain values: no I/O, no clock, no Kubernetes types."""
