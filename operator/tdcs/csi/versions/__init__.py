"""Which version of each dataset a node shows, what it consists of, and where it lies on the node."""
