"""Agents in memory, for tests and simulation."""
