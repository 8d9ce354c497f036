"""The cache agent: the process next to each cache worker that carries bytes."""
