"""What end-to-end tests share: jobs and pods of theirs, what these read, metrics, a real Prometheus."""
