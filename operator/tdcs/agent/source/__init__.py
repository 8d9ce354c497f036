"""Reading sources."""
