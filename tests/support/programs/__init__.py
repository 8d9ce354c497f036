"""Programs that run beside tests: processes that never outlive them, their ports, a browser, a Prometheus."""
