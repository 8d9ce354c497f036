"""Comparing what lies on the disk with the source."""
