"""The certificates of a release, kept as Secrets."""
