"""The kind Dataset."""
