"""Fetching from other nodes: connections to their agents, and who is asked for what."""
