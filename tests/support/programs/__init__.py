"""Programs that run next to tests: processes that never outlive them, their ports, a browser, a Prometheus."""
