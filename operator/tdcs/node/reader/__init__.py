"""The remote-read client: a read-only FUSE file system for what of a dataset is not on the node."""
