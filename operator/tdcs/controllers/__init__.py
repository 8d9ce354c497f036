"""The operator: observe, plan, apply, one module for each kind."""
