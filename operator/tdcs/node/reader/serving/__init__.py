"""Answers what the kernel asks: which version, which bytes, from where."""
