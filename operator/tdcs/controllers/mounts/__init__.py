"""What concerns a mounted source, whoever reads it: its identity, keys, mounting, manifest, placement and end."""
