"""The cache engine: a narrow protocol and Alluxio behind it."""
