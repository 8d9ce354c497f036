"""`tdcs plan`: what would become of a TrainingJob that is not applied yet."""
