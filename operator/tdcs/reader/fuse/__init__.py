"""The FUSE session: protocol, mount, and what outlives the processes that serve it."""
