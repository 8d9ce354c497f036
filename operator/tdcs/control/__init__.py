"""The operator: observe, decide, apply. One room a kind."""
