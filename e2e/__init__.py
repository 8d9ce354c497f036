"""End-to-end tests on the local cluster."""
