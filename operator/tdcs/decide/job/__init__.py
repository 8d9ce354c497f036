"""How a job stands: what it waits for, which of its pods lack a node, what Kueue is answered."""
