"""Random worlds and objects, drawn from a seed."""
