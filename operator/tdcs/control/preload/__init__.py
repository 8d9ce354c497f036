"""Preloads: how far each is."""
