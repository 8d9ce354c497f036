"""Bandwidth and latency between the workers of a job. No torch."""
