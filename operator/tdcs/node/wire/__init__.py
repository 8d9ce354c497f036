"""The block protocol: how agents and readers ask agents for blocks."""
