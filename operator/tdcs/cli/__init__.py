"""The command tdcs."""
