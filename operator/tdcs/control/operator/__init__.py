"""The operator as a process: views, work queue, wiring, health, certificates."""
