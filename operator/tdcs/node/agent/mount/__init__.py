"""One mount as the agent works on it: its blocks, and its source."""
