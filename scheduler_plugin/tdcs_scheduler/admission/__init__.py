"""Which new pods become ours: what the API server needs to give pods with a Dataset's claim the scheduler's name."""
