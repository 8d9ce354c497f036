"""The blocks on the disk: what lies there, what belongs to nothing, and what differs from the source."""
