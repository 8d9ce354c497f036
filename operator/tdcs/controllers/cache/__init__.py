"""What every cache cluster says of itself, and what its agents are assigned."""
