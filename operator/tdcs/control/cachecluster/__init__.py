"""CacheClusters: their pods, their workers, what they say and what they are assigned."""
