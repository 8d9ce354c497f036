"""Bringing blocks from sources and from other agents."""
