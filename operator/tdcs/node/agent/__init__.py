"""The cache agent: the process beside each cache worker that carries bytes."""
