"""The S3 store of the local cluster: its service, its content and its link."""
