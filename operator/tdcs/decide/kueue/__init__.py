"""Decisions of which Kueue is a part: where a Workload stands, what it waits for, and where its pods run."""
