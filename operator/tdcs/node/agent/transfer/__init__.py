"""Brings blocks, from the source and from other agents, and exports them to Alluxio."""
