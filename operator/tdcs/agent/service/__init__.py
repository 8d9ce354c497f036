"""The HTTP service of an agent."""
