"""The mounts that Datasets of one source share: one pass observes, decides and acts."""
