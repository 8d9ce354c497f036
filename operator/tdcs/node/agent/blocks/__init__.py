"""The blocks on the disk: what is there, what belongs to nothing, and what differs from the source."""
