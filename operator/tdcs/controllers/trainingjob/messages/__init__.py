"""What a TrainingJob says of a role that failed, and of a child that the API server refuses. Pure."""
