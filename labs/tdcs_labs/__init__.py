"""A simulator of a training cluster that runs the operator's own decisions."""
