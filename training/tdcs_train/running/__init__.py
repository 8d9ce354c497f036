"""What `tdcs-train run` does: a plan, data by position, rounds with checkpoints, evaluation, and an exit code."""
