"""Plans of training as pure functions: profiles, pipelines of stages, orders of transfers. No torch, no I/O."""
