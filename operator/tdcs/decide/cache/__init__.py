"""What the cache holds: what is wanted, granted, loaded next and evicted first."""
