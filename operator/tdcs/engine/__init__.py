"""The cache engine: a narrow protocol, Alluxio behind it, and an in-memory twin for tests."""
