"""What readers on the nodes and the operator say to each other: who holds what, failed reads, how long reads waited."""
