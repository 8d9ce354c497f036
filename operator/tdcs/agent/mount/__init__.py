"""What an agent knows of one mount."""
